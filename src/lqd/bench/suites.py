"""`lqd bench --suite pareto|bars-train|...`: what to run for each figure of the paper, as data.

A suite is a plan (parts: a setting and the rules under it). Suites share parts, and so their pieces: `pareto`,
`bars-train` and `ablation` look at the same runs. `paper` is the paper's size as far as its text and the authors'
public scripts say it: dimension 16, no noise, no rotation, a million evaluations (31,246 generations and the start
population; the scripts have 32,768), MAP-Elites on [-10 sqrt(n), 10 sqrt(n)]^2 and again with a box fitted to each
function (`me-fitted`; the boxes of the arm and of the robots stay); robots with population 1,024 (3,902 generations;
the scripts have 4,096). `scaled` has the paper's functions and seeds at the budget of training, and robots as far as
minutes on a GPU allow; `longer` is the same with the two cheapest robots for six times as long. `quick` has fewer
functions and seeds too; robots in it only show that they run. Results that are not of the paper's size are marked as
such in every figure.
"""

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lqd import checks
from lqd.bench import landscapes
from lqd.bench.plan import OnPiece, Part, Plan, Results, folder_of, measure_all
from lqd.bench.settings import ARM, Setting
from lqd.errors import InvalidInput, unknown
from lqd.io import manifest
from lqd.io.files import understood, write_bytes
from lqd.rules.catalogue import BLIND, FITTED, HANDMADE, LEARNED
from lqd.tasks.bbob import instances
from lqd.tasks.brax import ROBOTS

RULES = (*HANDMADE, FITTED, *LEARNED)
GRID_FUNCTIONS = ("rastrigin", "linear_slope", "schaffers_f7", "katsuura")
MILLION_EVALUATIONS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Robots:
    """Which robots there are, and the size of their part, if it differs from the rest."""

    num_seeds: int
    num_evaluations: int
    episode_length: int
    population_size: int
    names: tuple[str, ...] = tuple(ROBOTS)
    num_resets: int = 32  # on which the best and the elites are evaluated again


@dataclasses.dataclass(frozen=True)
class Preset:
    """How large the suites are."""

    functions: tuple[str, ...]
    num_seeds: int
    num_evaluations: int
    grid_populations: tuple[int, ...]
    grid_dims: tuple[int, ...]
    landscapes: landscapes.Size
    robots: Robots | None = None
    num_rows: int = 24

    def setting(self, population_size: int = 128, **given) -> Setting:
        """The budget is in evaluations: a larger population has fewer generations. A quarter of it are offspring.

        It covers the initial population, and then as many whole generations as the rest allows.
        """
        batch_size = population_size // 4
        num_evaluations = given.pop("num_evaluations", self.num_evaluations)
        return Setting(
            num_generations=(num_evaluations - population_size) // batch_size, population_size=population_size,
            batch_size=batch_size, rotate=False, **{"min_dim": 16, "max_dim": 16, "num_seeds": self.num_seeds} | given,
        )  # fmt: skip


PRESETS = {
    "quick": Preset(
        functions=(
            "sphere", "rastrigin", "linear_slope", "rosenbrock", "sharp_ridge", "schaffers_f7", "katsuura", "lunacek",
        ),
        num_seeds=8,
        num_evaluations=128 + 256 * 32,
        grid_populations=(64, 128, 256),
        grid_dims=(2, 8, 32),
        landscapes=landscapes.Size(num_generations=512, num_frames=16, resolution=32),
        robots=Robots(num_seeds=4, num_evaluations=256, episode_length=40, population_size=128, num_resets=4),
    ),
    "scaled": Preset(
        functions=instances.TRAINING_SET,
        num_seeds=32,
        num_evaluations=128 + 256 * 32,
        grid_populations=(64, 128, 256),
        grid_dims=(2, 4, 8, 16, 32),
        landscapes=landscapes.Size(num_generations=512, num_frames=32, resolution=64),
        robots=Robots(num_seeds=16, num_evaluations=33_792, episode_length=250, population_size=1024),
    ),
    "paper": Preset(
        functions=instances.TRAINING_SET,
        num_seeds=32,
        num_evaluations=MILLION_EVALUATIONS,
        grid_populations=(64, 128, 256, 512, 1024),
        grid_dims=(2, 4, 8, 16, 32),
        landscapes=landscapes.Size(num_generations=512, num_frames=32, resolution=64),
        robots=Robots(num_seeds=32, num_evaluations=MILLION_EVALUATIONS, episode_length=1000, population_size=1024),
    ),
}  # fmt: skip
_LONGER = Robots(8, 197_632, episode_length=250, population_size=1024, names=("hopper", "walker2d"))
PRESETS["longer"] = dataclasses.replace(PRESETS["scaled"], robots=_LONGER)


def _train(preset: Preset) -> Plan:
    return {"train": Part(preset.setting(functions=preset.functions, num_rows=preset.num_rows), RULES)}


def _ood(preset: Preset) -> Plan:
    return {"ood": Part(preset.setting(functions=instances.OOD, num_rows=preset.num_rows), RULES)}


def _grid(preset: Preset) -> Plan:
    dims = preset.grid_dims
    given = {"functions": GRID_FUNCTIONS, "dims": dims, "min_dim": min(dims), "max_dim": max(dims)}
    return {
        f"grid {size}": Part(preset.setting(size, **given), ("me", FITTED, "lqd-f")) for size in preset.grid_populations
    }


def has_brax() -> bool:
    return importlib.util.find_spec("brax") is not None


NEED_BRAX = "robots need brax: pip install 'lqd[brax]'."


def leaves_robots_out(suite: str, preset: Preset) -> bool:
    """Whether a suite would have robots, if brax were installed."""
    return "arm" in plan(suite, preset) and preset.robots is not None and not has_brax()


def _robots(preset: Preset) -> Plan:
    """The arm, and the simulated robots where brax is installed."""
    arm = preset.setting(functions=ARM, num_rows=preset.num_rows)
    plan = {"arm": Part(arm, (*HANDMADE, "lqd-f"))}
    if preset.robots is None or not has_brax():
        return plan
    size = dataclasses.asdict(preset.robots)
    for robot in size.pop("names"):
        setting = preset.setting(**size, functions=(f"brax/{robot}",), num_rows=preset.num_rows)
        plan[robot] = Part(setting, (*HANDMADE, "lqd-f", BLIND), together=True)
    return plan


def _ablation(preset: Preset) -> Plan:
    train = _train(preset)["train"]
    return {"train": train._replace(rules=(*train.rules, BLIND))} | _robots(preset)


SUITES: dict[str, Callable[[Preset], Plan]] = {
    "pareto": _train,
    "bars-train": _train,
    "bars-ood": _ood,
    "grid": _grid,
    "landscape": lambda preset: {},
    "ablation": _ablation,
    "diversity": lambda preset: _train(preset) | _robots(preset),
    "robots": _robots,
    "robots-aggregate": _robots,
}
NAMES = (*SUITES, "all")


def plan(suite: str | Iterable[str], preset: Preset) -> Plan:
    """The parts of a suite, of several, or of all."""
    wanted = [suite] if isinstance(suite, str) else suite
    found: Plan = {}
    for name in SUITES:
        if name not in wanted and "all" not in wanted:
            continue
        for part_name, part in SUITES[name](preset).items():
            known = found.get(part_name, part)
            found[part_name] = part._replace(rules=tuple(dict.fromkeys([*known.rules, *part.rules])))
    return found


def sized(suite: str, preset: str, num_seeds: int | None = None) -> Preset:
    """The preset of this name, with another number of seeds if one is given."""
    if suite not in NAMES:
        raise unknown("suite", suite, NAMES)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    size = PRESETS[preset]
    if num_seeds is None:
        return size
    num_seeds = checks.whole("seeds", num_seeds, 2)
    robots = size.robots and dataclasses.replace(size.robots, num_seeds=num_seeds)
    return dataclasses.replace(size, num_seeds=num_seeds, robots=robots)


def run(
    suite: str,
    preset: str,
    out: pathlib.Path,
    progress: OnPiece = lambda *_: None,
    num_seeds: int | None = None,
    until: float | None = None,
) -> dict[str, Any]:
    """Runs what is missing, and writes manifest.json, results.parquet, history.parquet and landscape/.

    A folder holds the suites that were run into it, one after the other, all of one size. With more seeds than before
    all of them get more; where a simulator makes them slow, only the new seeds run. When time is up (`until`, as
    `time.perf_counter` says it), `OutOfTime` is raised; what was done is kept.
    """
    size = sized(suite, preset, num_seeds)
    checks.installed("pyarrow", "bench", "a file of results (Parquet)")
    suites = [name for name in NAMES if name == suite or name in _suites_in(out, preset, size)]
    results = measure_all(plan(suites, size), out / "pieces" / preset, progress, until)
    found = content(suites, preset, results) | {"num_seeds": num_seeds}
    if "landscape" in suites or "all" in suites:
        found["landscape"] = landscapes.run(size.landscapes, out / "landscape", progress)
    if results.plan:
        write(results, out)
    manifest.write(out / "manifest.json", found)
    return found


def parts(suite: str, size: Preset, only: Sequence[str] = ()) -> Plan:
    """The parts of a suite, or only those of these names."""
    planned = plan(suite, size)
    for name in only:
        if name in ROBOTS and name not in planned and not has_brax():
            raise InvalidInput(f"only {name!r}: {NEED_BRAX}")
        if name not in planned:
            raise unknown(f"part of suite {suite!r}", name, planned)
    return {name: planned[name] for name in only or planned}


def run_parts(
    suite: str,
    preset: str,
    out: pathlib.Path,
    only: Sequence[str],
    progress: OnPiece = lambda *_: None,
    num_seeds: int | None = None,
    until: float | None = None,
) -> None:
    """Runs what is missing of some parts, and writes their pieces alone: several processes can share a folder so, each
    with other parts, and `run` takes all pieces from there."""
    planned = parts(suite, sized(suite, preset, num_seeds), only)
    _suites_in(out, preset, sized(suite, preset, num_seeds))
    measure_all(planned, out / "pieces" / preset, progress, until)


def folders(out: pathlib.Path, preset: str, planned: Iterable[str], is_whole: bool) -> list[pathlib.Path]:
    """Below `out`, where these parts are read and written; for a suite as a whole, all that there are."""
    pieces = out / "pieces" / preset
    there = [*pieces.glob("*"), out / "landscape", out / "figures"] if is_whole else []
    return sorted({folder_of(pieces, name) for name in planned} | {path for path in there if path.is_dir()})


def _suites_in(out: pathlib.Path, preset: str, size: Preset) -> list[str]:
    """The suites already in the folder; an error if they are of another preset or have more seeds."""
    path = out / "manifest.json"
    if not path.exists():
        return []
    known = manifest.read(path, "a bench (--out)")
    with understood(path):
        before, suites = known["preset"], list(known["suites"])
        seeds = {name: int(part["setting"]["num_seeds"]) for name, part in known["parts"].items()}
    if before != preset:
        raise InvalidInput(f"--out {out} holds results of preset {before!r}, not of {preset!r}; give another folder.")
    planned = plan(suites, size)
    for name in seeds:
        if name in ROBOTS and name not in planned:
            raise InvalidInput(f"--out {out} holds {name!r}, which would be lost: {NEED_BRAX}")
    for name, part in planned.items():
        if seeds.get(name, 0) > part.setting.num_seeds:
            raise InvalidInput(
                f"--out {out} holds {name!r} with {seeds[name]} seeds, these would be {part.setting.num_seeds}; "
                f"give --seeds {seeds[name]} or more, or another folder."
            )
    return suites


def _asked(part: str, preset: Preset) -> int:
    """The budget of a part, before it is rounded down to whole generations."""
    return preset.robots.num_evaluations if part in ROBOTS and preset.robots is not None else preset.num_evaluations


def budgets(found: dict[str, Any]) -> str:
    """How many evaluations were asked for and made, from a manifest: a line for each budget."""
    said: dict[int, list[str]] = {}
    for part in found["parts"].values():
        setting, (asked, made) = part["setting"], (part["num_evaluations"][name] for name in ("asked", "made"))
        one = f"population {setting['population_size']:,}, {setting['num_generations']:,} generations of "
        one += f"{setting['batch_size']:,}, {made:,} made"
        if one not in said.setdefault(asked, []):
            said[asked].append(one)
    return "\n".join(f"{asked:,} evaluations asked for: {'; '.join(made)}." for asked, made in said.items())


def content(suites: Sequence[str], preset: str, results: Results) -> dict[str, Any]:
    """The content of the manifest: the settings, and how every piece was made."""
    parts = {
        name: {
            "setting": dataclasses.asdict(part.setting),
            "num_evaluations": {"asked": _asked(name, PRESETS[preset]), "made": part.setting.num_evaluations},
            "rules": part.rules,
            "pieces": results.made[name],
        }
        for name, part in results.plan.items()
    }
    made = results.facts() if results.plan else {}
    return {"suites": list(suites), "preset": preset, "made": made, "parts": parts}


def write(results: Results, out: pathlib.Path) -> None:
    """results.parquet and history.parquet, in single precision as they were computed."""
    for name, frame in (("results", results.rows()), ("history", results.history())):
        floats = frame.select_dtypes("float64").columns
        frame = frame.astype(dict.fromkeys(floats, "float32"))
        write_bytes(
            out / f"{name}.parquet", frame.to_parquet(index=False, compression="zstd", write_page_checksum=True)
        )
