"""`lqd bench --suite second`: rules that also decide who breeds and how far, against those that decide who survives.

Tables (`TABLES`; `--only` takes their names): best fitness on BBOB in 2 to 12 dimensions and in 40, diversity, novelty,
and QD score on a grid that sees every solution. `bench/second_tables.py` says what is compared and how.

Everybody has the same evaluations on the same tasks. On BBOB, rules see descriptors as they were trained on them; on
the grid's tasks, variations other than iso-line see them as in `lqd.optimize`, as shares of their bounds. Rules that
are not shipped, and opponents whose package is not installed, are left out, and the output says so. Candidates are
judged with other random numbers (`which=VALIDATION`) than what is quoted. Robots are not in this version.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lqd import checks
from lqd.bench import cma_es, contestants, domains, piece, second_tables, watched
from lqd.bench.plan import OnPiece, Results
from lqd.bench.runner import TEST, Bench, held_out
from lqd.bench.second_tables import MAP_ELITES, TABLES, Found, Table
from lqd.bench.settings import Setting
from lqd.errors import InvalidInput, unknown
from lqd.evolution.led import led_by
from lqd.evolution.variation import IsoLine
from lqd.io import manifest
from lqd.io.files import write_bytes
from lqd.rules import catalogue, scaled
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import Rule
from lqd.tasks.bbob import instances
from lqd.tasks.bbob.instances import LandscapeBatch

NEW = ("lqd2-f", "lqd2-n", "lqd2-fn")  # what is judged here
POPULATION_SIZE, BATCH_SIZE = 128, 32
STREAM = 0x6772D  # folded in where runs on the grid's tasks get their keys
Rules = Mapping[str, Rule]


@dataclasses.dataclass(frozen=True)
class Size:
    """How large the tables are; evaluations by part."""

    functions: tuple[str, ...] = instances.TRAINING_SET
    num_seeds: int = 32
    num_grid_seeds: int = 16
    domains: tuple[str, ...] = tuple(domains.DOMAINS)
    evaluations: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"bbob": 8_320, "bbob-40": 41_600, "grid": 51_840, "million": 1_000_000}
    )

    def __post_init__(self):
        checks.whole("num_seeds", self.num_seeds, 2)
        checks.whole("num_grid_seeds", self.num_grid_seeds, 2)
        for domain in self.domains:
            if domain not in domains.DOMAINS:
                raise unknown("task", domain, domains.DOMAINS)
        for part, num in self.evaluations.items():
            if num <= POPULATION_SIZE or (num - POPULATION_SIZE) % BATCH_SIZE:
                raise InvalidInput(
                    f"{part}: {num:,} evaluations are not {POPULATION_SIZE} and whole batches of {BATCH_SIZE}."
                )

    def setting(self, part: str) -> Setting:
        """Of one of the parts on BBOB."""
        least, most = (40, 40) if part == "bbob-40" else (2, 12)
        return Setting(
            functions=self.functions, num_seeds=self.num_seeds, min_dim=least, max_dim=most,
            num_generations=(self.evaluations[part] - POPULATION_SIZE) // BATCH_SIZE, population_size=POPULATION_SIZE,
            batch_size=BATCH_SIZE,
        )  # fmt: skip


PRESETS = {
    "quick": Size(  # mostly compiling
        ("rastrigin", "rosenbrock"), num_seeds=4, num_grid_seeds=4, domains=("sphere-20",),
        evaluations={"bbob": 4_224, "bbob-40": 4_224, "grid": 4_352, "million": 17_408},
    ),
    "full": Size(),
}  # fmt: skip
LEFT_OUT = {"quick": ("fitness-40", "million"), "full": ("million",)}  # unless `--only` asks for them


class Work(NamedTuple):
    """What runs: tables, whose rows are known; names by part; and what is left out, in sentences."""

    tables: dict[str, Table]
    names: dict[str, list[str]]
    left_out: list[str]


def chosen(preset: str, only: Sequence[str]) -> list[str]:
    """The tables that are asked for; without a wish, all but those that take long."""
    for name in only:
        if name not in TABLES:
            raise unknown("table", name, TABLES)
    return [name for name in TABLES if name in only or (not only and name not in LEFT_OUT.get(preset, ()))]


def plan(preset: str, only: Sequence[str] = (), own: Rules | None = None, without: Sequence[str] = ()) -> Work:
    """What runs, with one's own rules (`lqd2-f`, or `lqd2-f.NAME` beside it) and without some opponents."""
    own = own or {}
    for name in own:
        if name.partition(".")[0] not in NEW:
            raise unknown("rule to judge", name, NEW)
    known = {name for name in TABLES for name in TABLES[name].others}
    for name in without:
        if name not in known:
            raise unknown("opponent", name, sorted(known))
    missing = {"cma-es": not cma_es.is_installed(), **dict.fromkeys(watched.EMITTERS, not watched.has_ribs())}
    tables, names, left_out = {}, dict[str, list[str]](), []
    for table_name in () if only else LEFT_OUT.get(preset, ()):
        left_out.append(f"Table `{table_name}` is not in preset `{preset}`: `--only {table_name}` runs it.")
    for table_name in chosen(preset, only):
        table = TABLES[table_name]
        rule, _, variation = table.ours[0].partition("+")
        candidates = [one for one in (rule, *own) if one.partition(".")[0] == rule and _is_there(one, own)]
        ours = tuple(f"{one}+{variation}" for one in dict.fromkeys(candidates))
        if not ours:
            left_out.append(f"`{rule}` is not shipped yet: its rows are left out.")
        for other in table.others:
            if missing.get(other):
                package = "cma" if other == cma_es.NAME else "ribs"
                left_out.append(f"`{other}` needs {package} (pip install 'lqd[bench]'): its rows are left out.")
        others = tuple(one for one in table.others if one not in without and not missing.get(one))
        tables[table_name] = table._replace(ours=ours, others=others)
        first = [MAP_ELITES] if table.part.startswith("bbob") else []  # the others are compared at its slots
        wanted = [*names.get(table.part, first), *ours, *others]
        names[table.part] = list(dict.fromkeys(wanted))
    contestants.check([one for part in names.values() for one in part if one not in missing], own)
    return Work(tables, names, list(dict.fromkeys(left_out)))


def _is_there(rule: str, own: Rules) -> bool:
    return rule in own or rule in catalogue.RULES


def run(
    preset: str, out: pathlib.Path, progress: OnPiece = lambda *_: None, only: Sequence[str] = (), *,
    which: int = TEST, own: Rules | None = None, without: Sequence[str] = (), size: Size | None = None,
    command: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Runs what is missing and writes second.json and second.md, in which the command stands."""
    if size is None and preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    size, own, work = size or PRESETS[preset], own or {}, plan(preset, only, own, without)
    found, made = Found({}, {}), dict[str, dict[str, Any]]()
    total, done = sum(len(names) * _times(part, size) for part, names in work.names.items()), 0
    for part, names in work.names.items():
        folder = out / "pieces" / preset / part

        def on(label: str, num: int, part=part, done=done) -> None:
            progress(f"{part}: {label}", done + num, total)

        measured = _bbob if part.startswith("bbob") else _grid
        measured(part, names, size, folder, which, own, found, made, on)
        done += len(names) * _times(part, size)
    progress("done", done, total)
    facts = Results({}, {}, made).facts()
    content = second_tables.content(work.tables, found) | {
        "command": command or " ".join(["lqd bench --suite second --preset", preset, *(f"--only {n}" for n in only)]),
        "key": "test" if which == TEST else "validation", "made": facts, "left_out": work.left_out,
        "size": dataclasses.asdict(size), "weights": {name: _known(rule) for name, rule in own.items()},
    }  # fmt: skip
    manifest.write(out / "second.json", content)
    write_bytes(out / "second.md", second_tables.markdown(content).encode())
    return content


def _times(part: str, size: Size) -> int:
    return 1 if part.startswith("bbob") else len(size.domains)


def _bbob(part: str, names, size: Size, folder, which: int, own: Rules, found: Found, made, on) -> None:
    """Every rule on all tasks of a part on BBOB; CMA-ES by function."""
    bench = Bench(size.setting(part), folder, which=which, slots_of=MAP_ELITES, rules=own)
    found.bbob[part] = tables = {}
    for num, name in enumerate(names):
        on(name, num)
        if name == cma_es.NAME:
            tables[name] = _cma_es(bench, size.evaluations[part], made.setdefault(part, {}))
        else:
            tables[name] = bench.measure(name)
    made.setdefault(part, {}).update(bench.made)


def _cma_es(bench: Bench, num_evaluations: int, made: dict[str, Any]) -> dict[str, np.ndarray]:
    """The best fitness of every run, as the last row of a history."""
    if not isinstance(bench.field.tasks, LandscapeBatch):
        raise TypeError("CMA-ES runs on landscapes")
    num = bench.setting.num_seeds
    data = np.asarray(jax.random.key_data(bench.keys)).reshape(-1, num, 2)
    seeds = dict(zip(bench.setting.functions, data.tolist(), strict=True))
    found = dict[str, np.ndarray]()

    def path(function: str) -> pathlib.Path:
        return bench.folder / cma_es.NAME / f"{function}.safetensors"

    def about(function: str) -> dict[str, Any]:
        setting = dataclasses.asdict(bench.setting) | {"functions": [function]}
        drawn = {"setting": setting, "key": bench.which, "seeds": seeds[function], "num_evaluations": num_evaluations}
        return drawn | cma_es.described()

    for function in seeds:
        if (kept := piece.read(path(function), about(function))) is not None:
            found[function], made[f"cma-es {function}"] = kept[0]["best"], kept[1]
    missing = {function: seeds[function] for function in seeds if function not in found}

    def keep(function: str, best: np.ndarray, seconds: float) -> None:
        made[f"cma-es {function}"] = piece.write(path(function), about(function), {"best": best}, seconds)
        found[function] = best

    cma_es.of_every_function(bench.field.tasks, missing, num_evaluations, keep)
    return {"history.best": np.stack([found[function] for function in seeds], axis=1)[None]}


def _known(rule: Rule) -> str:
    """The fingerprint of a rule's weights, or what kind of rule it is."""
    return rule.fingerprint() if isinstance(rule, Learned) else type(rule).__name__


def _grid(part: str, names, size: Size, folder, which: int, own: Rules, found: Found, made, on) -> None:
    """Every rule and pyribs's emitters on the grid's tasks."""
    found.grid[part] = {}
    for i, domain_name in enumerate(size.domains):
        found.grid[part][domain_name] = tables = {}
        for j, name in enumerate(names):
            on(f"{domain_name}, {name}", i * len(names) + j)
            about, compute = _on_grid(domain_name, name, size.evaluations[part], size.num_grid_seeds, which, own)
            path = folder / domain_name / f"{name}.safetensors"
            arrays, facts = piece.kept(path, about, compute)
            tables[name] = watched.Seen(**arrays)
            made.setdefault(part, {})[f"{domain_name} {name}"] = facts


def _on_grid(domain_name: str, name: str, num_evaluations: int, num_seeds: int, which: int, own: Rules):
    """What a piece depends on, and what computes it."""
    domain, tuned = domains.DOMAINS[domain_name], domains.TUNED[domain_name]
    keys = jax.random.split(jax.random.fold_in(held_out(which).runs, STREAM), num_seeds)
    about: dict[str, Any] = {
        "task": domain_name, "dim": domain.dim, "half_width": domain.half_width, "key": which, "num_seeds": num_seeds,
        "num_evaluations": num_evaluations,
    }  # fmt: skip
    if name in watched.EMITTERS:
        num_iterations = max(num_evaluations // (watched.NUM_EMITTERS * watched.EMITTER_BATCH), 1)
        seeds = np.asarray(jax.random.key_data(keys))[:, -1].tolist()

        def compute_emitters() -> piece.Arrays:
            runs = [watched.emitters(domain, name, tuned[name][0], seed, num_iterations) for seed in seeds]
            return watched.together(runs)._asdict()

        return about | {"emitters": name, "steps": list(tuned[name])}, compute_emitters
    rule_name, variation, _ = contestants.parse(name)
    rule = own[rule_name] if rule_name in own else catalogue.rule(rule_name)
    operator = contestants.operator(variation or "paper", domain.box, tuned, rule_name)
    about |= {
        "rule": _known(rule),
        "variation": contestants.described(operator),
        "sizes": [POPULATION_SIZE, BATCH_SIZE],
    }

    def compute() -> piece.Arrays:
        seen = rule if isinstance(operator, IsoLine) else scaled.in_units(rule, domain.box, "edge")
        sizes = (POPULATION_SIZE, BATCH_SIZE)
        return watched.search(domain, led_by(seen, operator), operator, keys, num_evaluations, *sizes)._asdict()

    return about, compute
