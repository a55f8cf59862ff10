"""`lqd rerun MANIFEST` repeats a run from its manifest alone, and compares the two number by number.

`lqd run` and `lqd bench` write a manifest as manifest.json, `lqd train` and `lqd imitate` as card.json. On the same
machine with the same versions every number agrees; any other difference in circumstances is reported.
"""

import dataclasses
import pathlib
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from lqd.bench.results import Folder
from lqd.cli import console, run
from lqd.errors import InvalidInput, Unreadable
from lqd.io import manifest, records
from lqd.io.files import read_arrays, understood
from lqd.meta import config as configs
from lqd.meta import train
from lqd.tasks.bbob import instances


@dataclasses.dataclass(frozen=True)
class Rerun:
    """Repeat a run from its manifest, and compare every number. With the same versions on the same machine, all of them
    agree.

    The exit status is 1 if something differs.
    """

    manifest: Annotated[pathlib.Path, tyro.conf.Positional]
    """manifest.json of a run or a bench, card.json of a training run, or the folder that contains it."""
    out: pathlib.Path | None = None
    """Folder for the new run; default FOLDER-again."""
    quiet: bool = False
    """Show no progress bar."""

    def main(self) -> None:
        comparison = rerun(self.manifest, self.out, self.quiet)
        print(sentence(comparison))
        if comparison.differences:
            raise SystemExit(1)


CLOCK = ("history.time_s",)


class Difference(NamedTuple):
    """Numbers that differ: where, how many, and by how much at most."""

    where: str
    num: int
    largest: float


class Comparison(NamedTuple):
    """How many numbers were compared, which of them differ, and what else has changed."""

    out: pathlib.Path
    num: int
    differences: list[Difference]
    circumstances: list[str]


def rerun(given: pathlib.Path, out: pathlib.Path | None = None, quiet: bool = False) -> Comparison:
    """Runs again into another folder, and compares."""
    path = _find(given)
    content = manifest.read(path, "a run")
    out = out or path.parent.with_name(f"{path.parent.name}-again")
    if out.exists() and any(out.iterdir()):
        raise InvalidInput(f"--out {out} is not empty; give another folder.")
    with understood(path):  # everything in it is read before anything runs
        circumstances = _circumstances(content)
        if content.get("command") == "run":
            pairs = _run(_run_of(content, path.parent, out, quiet), path.parent, out)
        elif "suites" in content:
            seeds = records.value_of(int | None, content.get("num_seeds"), "num_seeds")
            pairs = _bench(Folder(path.parent), seeds, out, quiet)
        elif "config" in content and "num_meta_generations" in content:
            num_done = records.value_of(int, content["num_meta_generations"], "num_meta_generations")
            pairs = _train(configs.shortened(configs.from_dict(content["config"]), num_done), path.parent, out, quiet)
        else:
            raise Unreadable(f"{path}: neither a manifest of lqd run or lqd bench nor the card of a training run.")
    num, differences = 0, []
    for name, before, after in pairs:
        num += sum(np.size(values) for values in before.values())
        differences += _compare(name, before, after)
    return Comparison(out, num, differences, circumstances)


def _find(given: pathlib.Path) -> pathlib.Path:
    places = [given] if given.is_file() else [given / name for name in ("manifest.json", "card.json")]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InvalidInput(f"manifest {given}: there is no such file, and no folder with manifest.json or card.json.")
    return found


def _run_of(content: dict[str, Any], folder: pathlib.Path, out: pathlib.Path, quiet: bool) -> run.Run:
    """The command of a run; one that ended early is repeated as far as it came."""
    values = content["config"]
    if isinstance(values, dict):  # older manifests do not say, because there was only one variation
        values = {"variation": "paper"} | values
    config = records.read(run.Run, values)
    reached = config.num_evaluations
    if content["stopped_by"]:
        reached = records.value_of(list[int], content["num_evaluations"], "num_evaluations")[0]
    version = content.get("instances", 1)  # older manifests do not say, because there was only one version
    if run.is_function(config.task) and version != instances.VERSION:
        raise InvalidInput(
            f"{folder}: a run on instance {config.instance} of {config.task!r} in version {version} of the "
            f"instances. In version {instances.VERSION}, which this lqd has, the same number is another landscape. "
            f"Repeat the run with the lqd that made it: commit {content.get('commit')}."
        )
    return dataclasses.replace(config, out=out, num_evaluations=reached, time_limit_s=None, quiet=quiet)


def _run(config: run.Run, folder: pathlib.Path, out: pathlib.Path):
    config.main()
    for i in range(config.num_seeds):
        name = f"result_{config.seed + i}.safetensors"
        yield (name, *(_arrays(one / name, "result") for one in (folder, out)))


def _bench(before: Folder, num_seeds: int | None, out: pathlib.Path, quiet: bool):
    from lqd.bench import suites

    with console.pieces_bar(quiet) as progress:
        for suite in before.manifest["suites"]:
            suites.run(suite, before.manifest["preset"], out, progress, num_seeds)
    after = Folder(out)
    for part, found in before.parts.items():
        for rule in found["rules"]:
            yield f"{part}: {rule}", before.table(part, rule), after.table(part, rule)


def _train(config: configs.Config, folder: pathlib.Path, out: pathlib.Path, quiet: bool):
    train.again(config, out, quiet)
    for name in ("rule.safetensors", "last.safetensors"):
        yield (name, *(_arrays(one / name, "rule") for one in (folder, out)))


def _arrays(path: pathlib.Path, kind: str) -> dict[str, np.ndarray]:
    return {name: value for name, value in read_arrays(path, kind)[0].items() if name not in CLOCK}


def _compare(where: str, before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> list[Difference]:
    if before.keys() != after.keys():
        return [Difference(f"{where}: {name}", 0, np.inf) for name in sorted(before.keys() ^ after.keys())]
    found = []
    for name in before:
        one, other = (np.asarray(values[name], np.float64) for values in (before, after))
        if one.shape != other.shape:
            found.append(Difference(f"{where}: {name}", one.size, np.inf))
            continue
        differs = ~((one == other) | (np.isnan(one) & np.isnan(other)))
        if differs.any():
            with np.errstate(invalid="ignore"):
                largest = float(np.nanmax(np.abs(one - other)[differs]))
            found.append(Difference(f"{where}: {name}", int(differs.sum()), largest))
    return found


def _circumstances(content: dict[str, Any]) -> list[str]:
    """Versions, devices and commit, where they have changed."""
    sessions = content.get("sessions") or [{}]
    before = content.get("made") or (content if "versions" in content else sessions[-1])
    found = []
    for name, now in manifest.environment().items():
        then = before.get(name)
        if then is not None and then != now:
            found.append(f"{name}: {_short(then)} then, {_short(now)} now")
    return found


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def sentence(comparison: Comparison) -> str:
    """The comparison in words."""
    lines = [f"{comparison.num:,} numbers compared, {comparison.out}: "]
    lines[0] += "all the same." if not comparison.differences else f"{len(comparison.differences)} arrays differ."
    lines += [f"  {d.where}: {d.num} numbers, by {d.largest:.3g} at most" for d in comparison.differences[:20]]
    if len(comparison.differences) > 20:
        lines.append(f"  and {len(comparison.differences) - 20} more")
    return "\n".join([*lines, *(f"  changed since: {text}" for text in comparison.circumstances)])
