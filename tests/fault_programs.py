"""What the fault tests run in processes of their own: `python fault_programs.py NAME FOLDER [LIMIT]`."""

import dataclasses
import os
import pathlib
import random
import resource
import signal
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import jax
import numpy as np

jax.config.update("jax_compilation_cache_dir", os.environ["LQD_TEST_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


class Hiccups:
    """`num` times somebody's function raises, at random calls."""

    def __init__(self) -> None:
        self.num, self.seed = (int(part) for part in os.environ.get("LQD_TEST_HICCUPS", "0 0").split())
        self.rng = random.Random(self.seed)

    def maybe(self, probability: float) -> None:
        if self.num and self.rng.random() < probability:
            raise RuntimeError("a hiccup")


hiccups = Hiccups()
GIVEN = {"dim": 3, "bounds": (0, 1), "population_size": 16, "batch_size": 4, "num_evaluations": 160}


def evaluate(x):
    time.sleep(0.005)
    hiccups.maybe(0.8 if len(x) > 1 else 0.35)
    return -np.abs(x - 0.3).sum(axis=1), x[:, :2], {"sum": x.sum(axis=1)}


def write_often() -> None:
    from lqd.search import saving

    saving.EVERY_S, saving.SHARE = 0.0, 1e9


def ask_tell(folder: pathlib.Path) -> None:
    """Asks one batch ahead, tells, and saves after every batch and whatever happens; goes on from what is there."""
    import lqd

    path = folder / "state.safetensors"
    search = lqd.AskTell(**{name: value for name, value in GIVEN.items() if name != "num_evaluations"})
    if path.exists():
        search = lqd.AskTell.load(path)
    ahead: list[np.ndarray] = []
    try:
        while search.num_evaluations < 160:
            while len(ahead) < 2:
                ahead.append(search.ask())
            x = ahead.pop(0)
            search.tell(x, *evaluate(x))
            search.save(path)
    except (RuntimeError, KeyboardInterrupt):
        search.save(path)
        raise


def optimize(folder: pathlib.Path, **given) -> None:
    import lqd

    write_often()
    lqd.optimize(evaluate, checkpoint=folder, resume=True, **GIVEN | given)


def executor(folder: pathlib.Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        optimize(folder, executor=threads)


class OneByOne(Executor):
    """Evaluates when something is handed in: who competes when does not depend on the clock."""

    def submit(self, function, /, *args):
        future: Future = Future()
        future.set_result(function(*args))
        return future


def steady_state(folder: pathlib.Path) -> None:
    optimize(folder, executor=OneByOne(), steady_state=True)


def _on_the_host(x):
    time.sleep(0.001)
    hiccups.maybe(0.25)
    return x[:, 0]


def _traced(x):
    import jax.numpy as jnp

    first = jax.pure_callback(_on_the_host, jax.ShapeDtypeStruct(x.shape[:1], x.dtype), x, vmap_method="sequential")
    return first - jnp.abs(x - 0.3).sum(axis=1), x[:, :2], {"sum": x.sum(axis=1)}


def compiled(folder: pathlib.Path) -> None:
    """With a row of history every tenth generation, and calls that end anywhere."""
    import lqd
    from lqd.evolution import driver

    write_often()
    driver.SECONDS_PER_CALL = 0.01
    given = GIVEN | {"population_size": 320, "num_evaluations": 320 + 4 * 405, "backend": "jax"}
    lqd.optimize(_traced, checkpoint=folder, resume=True, **given)


def bench(folder: pathlib.Path) -> None:
    from lqd.bench import landscapes, suites
    from lqd.cli import main
    from lqd.report import draw, page

    suites.PRESETS["tiny"] = dataclasses.replace(
        suites.PRESETS["quick"], functions=("sphere", "rastrigin"), num_seeds=3, num_evaluations=24, num_rows=2,
        landscapes=landscapes.Size(num_generations=4, num_frames=2, resolution=5),
    )  # fmt: skip
    draw.make_all = lambda _: {}  # slow, and nothing depends on them
    page.write = lambda *_, **__: None
    suites.Preset.setting.__defaults__ = (16,)  # individuals
    main(["bench", "--suite", "pareto", "--preset", "tiny", "--out", str(folder), "--quiet"])


def train(folder: pathlib.Path) -> None:
    from lqd.meta import train

    train.draw = lambda *_: None  # slow, and nothing depends on it
    train.train(
        out=folder, preset="smoke", resume=True, save_every_s=0, quiet=True, functions=("sphere", "rastrigin"),
        population_size=8, batch_size=4, num_layers=1, num_features=4, num_heads=2, num_hidden=4, validation_tasks=4,
        validation_generations=3, num_meta_generations=30, meta_population_size=4, num_tasks=2, num_generations=3,
        chunk_size=2, validation_every=30,
    )  # fmt: skip


def let_the_clock_jump() -> None:
    """By up to thirty years, back or forth, whenever the time of day is asked for."""
    import datetime

    from lqd.io import manifest

    rng, now = random.Random(), time.time
    time.time = lambda: now() + rng.uniform(-1e9, 1e9)
    manifest.now = lambda: datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    if os.environ.get("LQD_TEST_CLOCK") == "jumps":
        let_the_clock_jump()
    if len(sys.argv) > 3:  # the size that files may have; what is compiled must not need more
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its jobs to ignore it
    while True:
        try:
            globals()[sys.argv[1]](pathlib.Path(sys.argv[2]))
            break
        except RuntimeError:
            if not hiccups.num:
                raise
            hiccups.num -= 1
    print("hiccups left:", hiccups.num)
