"""Small results from every door of the package, and one file of each kind: what must not change unnoticed.

`python tests/golden/doors.py numbers` writes `numbers.safetensors` anew, `python tests/golden/doors.py files` the old
files. The files are never written anew: they stand for what users have on their disks. The numbers are, when a change
of results is intended; the change log then says which door changed, and why.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import pathlib
import platform
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import lqd

HERE = pathlib.Path(__file__).parent
NUMBERS, FILES = HERE / "numbers.safetensors", HERE / "files"
DIM, SIZE, BATCH = 4, 12, 6
SMALL = {"dim": DIM, "bounds": (-2, 3), "population_size": SIZE, "batch_size": BATCH, "seed": 3, "variation": "paper"}
NUM = SIZE + 5 * BATCH
BOX = ([-1.0, -1.5], [1.5, 1.0])
TINY_TRAINING = {
    "preset": "smoke", "functions": ("sphere", "rastrigin"), "population_size": 8, "batch_size": 4, "num_layers": 1,
    "num_features": 8, "num_heads": 4, "num_hidden": 4, "validation_tasks": 4, "validation_generations": 3,
    "num_meta_generations": 3, "meta_population_size": 4, "num_tasks": 2, "num_generations": 3, "chunk_size": 2,
    "validation_every": 2, "quiet": True,
}  # fmt: skip
TINY_IMITATION = {
    name: value for name, value in TINY_TRAINING.items()
    if name not in ("num_meta_generations", "meta_population_size", "num_tasks", "num_generations", "chunk_size",
                    "validation_every")
} | {"synthetic_rounds": 1, "own_rounds": 1, "steps_per_round": 3, "imitation_batch": 4}  # fmt: skip
HANDMADE, LEARNED = ("ga", "random", "ns", "dns", "me"), ("lqd-f", "lqd-n", "lqd-fn", "lqd-f-paper")

Numbers = dict[str, np.ndarray]


def machine() -> str:
    """What bits may depend on: versions, and what the processor can do."""
    cpu = pathlib.Path("/proc/cpuinfo")
    text = cpu.read_text() if cpu.exists() else platform.processor()
    known = sorted({line for line in text.splitlines() if line.startswith(("flags", "model name", "Features"))})
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    return json.dumps({"jax": jax.__version__, "jaxlib": jax.lib.__version__, "numpy": np.__version__, "cpu": digest})


def plain(x):
    """Fitness, descriptor and extras of a batch, by NumPy."""
    x = np.asarray(x, np.float32)
    fitness = -np.sum((x - np.float32(0.25)) ** 2, axis=1) - np.abs(x[:, 0] * x[:, 1])
    return fitness, x[:, :2] * np.float32(0.5), {"sum": x.sum(axis=1)}


def traced(x):
    """The same by JAX."""
    fitness = -jnp.sum((x - 0.25) ** 2, axis=1) - jnp.abs(x[:, 0] * x[:, 1])
    return fitness, x[:, :2] * 0.5, {"sum": x.sum(axis=1)}


def of_result(result: lqd.Result) -> Numbers:
    found = {"x": result.x, "fitness": result.fitness, "descriptor": result.descriptor}
    found |= {f"extras.{name}": value for name, value in result.extras.items()}
    if result.archive is not None:
        found |= {"archive.x": result.archive.x, "archive.fitness": result.archive.fitness}
    history = {f"history.{name}": result.history[name].to_numpy() for name in result.history if name != "time_s"}
    return found | history | {"best_x": result.best_x}


def named(**parts: Numbers) -> Numbers:
    return {f"{part}.{name}": value for part, found in parts.items() for name, value in found.items()}


def optimize_host() -> Numbers:
    def run(rule, **given):
        return of_result(lqd.optimize(plain, rule=rule, num_evaluations=NUM, **SMALL | given))

    cells = {"descriptor_bounds": BOX, "archive_cells": 9, "qd_offset": -20.0}
    return named(
        dns=run("dns", **cells), me=run("me", **cells), lqd=run("lqd-fn", minimize=True), paper=run("lqd-f-paper"),
        unbounded=run("ns", bounds=None, x0=np.arange(DIM), init_sigma=0.3),
    )  # fmt: skip


def optimize_compiled() -> Numbers:
    parts = {
        rule: of_result(
            lqd.optimize(traced, backend="jax", rule=rule, num_evaluations=NUM, descriptor_bounds=BOX, **SMALL)
        )
        for rule in (*HANDMADE, *LEARNED)
    }
    task = lqd.tasks.make("bbob/rastrigin", dim=5, noise=True)
    sizes = {"num_evaluations": 330, "population_size": 288, "batch_size": 8}
    large = lqd.optimize(task, rule="dns", variation="paper", archive_cells=8, **sizes)
    return named(**parts, large=of_result(large))


def ask_tell() -> Numbers:
    """Out of order, with what was not asked for, saved and loaded on the way."""
    search = lqd.AskTell(rule="lqd-n", descriptor_bounds=BOX, archive_cells=9, **SMALL)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(6):
            first, second = search.ask(), search.ask(4) if turn > 2 else None
            if second is not None:
                search.tell(second, *plain(second))
            search.tell(first, *plain(first))
            if turn == 3:
                x = np.linspace(-1, 1, 3 * DIM).reshape(3, DIM)
                search.tell(x, *plain(x))
                search.save(f"{folder}/state.safetensors")
                search = lqd.AskTell.load(f"{folder}/state.safetensors")
    return of_result(search.result())


def executor() -> Numbers:
    with ThreadPoolExecutor(2) as pool:
        return of_result(lqd.optimize(plain, rule="dns", num_evaluations=NUM, executor=pool, **SMALL))


def command_run() -> Numbers:
    from lqd.cli import main

    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        common = f"--out {folder} --overwrite --quiet --num-evaluations {NUM} --population-size {SIZE}"
        common += f" --batch-size {BATCH} --archive-cells 16 --variation paper"
        for name, words in {
            "arm": "--task arm --rule me --num-seeds 2",
            "noisy": "--task bbob/f15 --dim 3 --noise --rule lqd-fn --seed 5",
        }.items():
            main(["run", *words.split(), *common.split()])
            manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
            for seed, scores in manifest["scores"].items():
                result = lqd.Result.load(f"{folder}/result_{seed}.safetensors")
                values = {key: np.float64(value) for key, value in scores.items()}
                found |= named(**{f"{name}.{seed}": of_result(result), f"{name}.{seed}.scores": values})
    return found


def of_arrays(path: pathlib.Path) -> Numbers:
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def command_train() -> Numbers:
    """Two recipes, two objectives; the second is cut and goes on."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        first, second = (pathlib.Path(folder, name) for name in ("first", "second"))
        lqd.train(out=first, recipe=2, objective="qd", strategy="snes", **TINY_TRAINING)
        given = TINY_TRAINING | {"normalisation": "z-score", "aggregation": "median", "strategy": "sep-cma-es"}
        lqd.train(out=second, **given | {"num_meta_generations": 1})
        lqd.train(out=second, resume=True, **given)
        for name in ("first", "second"):
            (state,) = pathlib.Path(folder, name).glob("state-00000003*")
            rule = of_arrays(pathlib.Path(folder, name, "rule.safetensors"))
            found |= named(**{f"{name}.state": of_arrays(state), f"{name}.rule": rule})
    return found


def command_imitate() -> Numbers:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for teacher, recipe in (("ns", 1), ("me", 2)):
            out = pathlib.Path(folder, teacher)
            lqd.imitate(teacher, out=out, recipe=recipe, **TINY_IMITATION)
            found |= named(**{f"{teacher}": of_arrays(out / "rule.safetensors")})
    return found


def pyribs() -> Numbers:
    from lqd.integrations.ribs import LQDArchive

    found = {}
    for rule in ("lqd-fn", "dns", "me", "random"):
        ranges = [(-1, 1), (-1, 1)] if rule == "me" else None
        archive = LQDArchive(solution_dim=DIM, measure_dim=2, capacity=10, rule=rule, ranges=ranges, seed=1)
        rng = np.random.default_rng(0)
        for turn in range(4):
            x = rng.normal(size=(7, DIM)).astype(np.float32)
            fitness, descriptor, _ = plain(x)
            said = archive.add(x, np.round(fitness), descriptor)
            found |= named(**{f"{rule}.{turn}": said | archive.data(["objective", "measures", "solution"])})
    return found


def qdax() -> Numbers:
    from lqd.integrations.qdax import LQDRepertoire

    found = {}
    centroids = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (10, 2)), jnp.float32)
    for rule in ("lqd-fn", "dns", "me", "random"):
        rng, repertoire = np.random.default_rng(0), None
        for turn in range(4):
            x = rng.normal(size=(7, DIM)).astype(np.float32)
            fitness, descriptor, _ = plain(x)
            if repertoire is None:
                repertoire = LQDRepertoire.with_rule(rule, seed=1)(x, fitness[:, None], descriptor, centroids)
            else:
                repertoire = repertoire.add(x, descriptor, fitness[:, None])
            kept = {"x": repertoire.genotypes, "fitness": repertoire.fitnesses, "descriptor": repertoire.descriptors}
            found |= named(**{f"{rule}.{turn}": {name: np.asarray(value) for name, value in kept.items()}})
    return found


def bench() -> Numbers:
    from lqd.bench.runner import Bench
    from lqd.bench.settings import ARM, Setting

    sizes = {"num_seeds": 2, "num_generations": 5, "population_size": SIZE, "batch_size": BATCH, "num_rows": 3}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        functions = Bench(
            Setting(functions=("sphere", "lunacek"), max_dim=5, **sizes), pathlib.Path(folder, "functions")
        )
        for rule in ("me", "ga", "lqd-f", "lqd-f@random"):
            found |= named(**{f"functions.{rule}": functions.measure(rule)})
        arm = Bench(Setting(functions=ARM, **sizes), pathlib.Path(folder, "arm"))
        arm.measure_together(("dns", "me", "lqd-f", "lqd-f@random"))
        for rule in ("me", "dns", "lqd-f", "lqd-f@random"):
            found |= named(**{f"arm.{rule}": arm.measure(rule)})
    return found


DOORS = {
    door.__name__: door
    for door in (
        optimize_host, optimize_compiled, ask_tell, executor, command_run, command_train, command_imitate, pyribs,
        qdax, bench,
    )
}  # fmt: skip
NEEDS = {"qdax": "qdax", "pyribs": "ribs", "command_train": "evosax", "command_imitate": "evosax"}


def missing(door: str) -> str | None:
    """The package that a door needs and that is not installed."""
    package = NEEDS.get(door)
    return package if package is not None and importlib.util.find_spec(package) is None else None


def kept() -> tuple[Numbers, str]:
    """The golden numbers, and the machine that made them."""
    with safe_open(NUMBERS, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["machine"]  # noqa: SIM118


def write_numbers() -> None:
    """Of every door that is open here; the numbers of the others stay, if they are of an equal machine."""
    numbers, made = kept() if NUMBERS.exists() else ({}, machine())
    if made != machine():
        numbers = {}
    for name, door in DOORS.items():
        if missing(name):
            print(f"{name}: left as it is, without {missing(name)}")
            continue
        found = {f"{name}/{key}": np.atleast_1d(np.ascontiguousarray(value)) for key, value in door().items()}
        numbers = {key: value for key, value in numbers.items() if not key.startswith(f"{name}/")} | found
        print(f"{name}: {sum(value.size for value in found.values()):,} numbers")
    save_file(numbers, NUMBERS, {"machine": machine()})


def write_files() -> None:
    """One of each kind that users have on their disks."""
    from lqd.cli import main

    if FILES.exists():
        raise SystemExit(f"{FILES} exists: old files are never written anew")
    FILES.mkdir()
    search = lqd.AskTell(rule="lqd-fn", descriptor_bounds=BOX, archive_cells=9, **SMALL)
    for _ in range(4):
        x = search.ask()
        search.tell(x, *plain(x))
    search.save(FILES / "state.safetensors")
    search.result().save(FILES / "result.safetensors")
    lqd.optimize(plain, rule="dns", num_evaluations=NUM, checkpoint=FILES / "checkpoint-host", **SMALL)
    lqd.optimize(traced, backend="jax", rule="lqd-f", num_evaluations=NUM, checkpoint=FILES / "checkpoint-jax", **SMALL)
    lqd.save_rule(FILES / "rule.safetensors", lqd.rule("lqd-untrained", num_layers=1), {"note": "an old file"})
    lqd.train(out=FILES / "training", recipe=2, objective="qd", strategy="snes", **TINY_TRAINING)
    lqd.imitate("dns", out=FILES / "imitation", **TINY_IMITATION)
    words = f"run --task arm --rule dns --quiet --num-evaluations {NUM} --population-size {SIZE} --batch-size {BATCH}"
    main([*words.split(), "--archive-cells", "16", "--out", str(FILES / "run")])
    from lqd.bench import suites
    from lqd.bench.plan import Part
    from lqd.bench.settings import ARM

    tiny = suites.PRESETS["quick"].setting(8, functions=ARM, num_rows=2, num_seeds=2, num_evaluations=24)
    suites.SUITES["robots"] = lambda preset: {"arm": Part(tiny, ("me", "dns", "ga", "random", "lqd-f"))}
    suites.run("robots", "quick", FILES / "bench")
    for path in FILES.rglob("*"):
        if path.name in (".lock", "curve.png", "picture.png"):
            path.unlink()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    {"numbers": write_numbers, "files": write_files}[sys.argv[1]]()
    shutil.rmtree(HERE / "__pycache__", ignore_errors=True)
