"""What the fault tests run in processes of their own: `python fault_programs.py NAME FOLDER [LIMIT]`."""

import dataclasses
import os
import pathlib
import random
import resource
import sys
import time

import jax
import numpy as np

jax.config.update("jax_compilation_cache_dir", os.environ["LQD_TEST_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def ask_tell(folder: pathlib.Path) -> None:
    """Asks, tells and saves after every batch; goes on from what is there."""
    import lqd

    path = folder / "state.safetensors"
    search = lqd.AskTell(dim=3, bounds=(0, 1), population_size=16, batch_size=4, rule="dns")
    if path.exists():
        search = lqd.AskTell.load(path)
    while search.num_evaluations < 160:
        x = search.ask()
        search.tell(x, -np.abs(x - 0.3).sum(axis=1), x[:, :2], {"sum": x.sum(axis=1)})
        search.save(path)


def optimize(folder: pathlib.Path) -> None:
    import lqd
    from lqd.search import saving

    saving.EVERY_S, saving.SHARE = 0.0, 1e9

    def evaluate(x):
        time.sleep(0.005)
        return -np.abs(x - 0.3).sum(axis=1), x[:, :2]

    given = {"dim": 3, "bounds": (0, 1), "population_size": 16, "batch_size": 4, "num_evaluations": 160}
    lqd.optimize(evaluate, checkpoint=folder, resume=True, **given)


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
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]))
