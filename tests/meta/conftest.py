"""A training run small enough for a test. Nearly all of its time is the compiler's."""

import pathlib
import subprocess
import sys

import pytest
import quick
from training_runs import Reached, flags

from lqd.meta import config as configs
from lqd.meta import presets, trainer
from lqd.meta.train import train

TINY = {
    "functions": ("sphere", "rastrigin"),
    "num_meta_generations": 4,
    "meta_population_size": 4,
    "num_tasks": 2,
    "num_generations": 3,
    "population_size": 8,
    "batch_size": 4,
    "chunk_size": 2,
    "num_layers": 1,
    "num_features": 4,
    "num_heads": 2,
    "num_hidden": 4,
    "validation_every": 2,
    "validation_tasks": 4,
    "validation_generations": 3,
}


@pytest.fixture(scope="session")
def tiny() -> configs.Config:
    return presets.override(presets.preset("smoke"), TINY)


@pytest.fixture(scope="session")
def start_python():
    """Starts a script on so many CPU devices, as strict as the suite and compiling as the suite does."""

    def start(code: str, *args: object, num_devices: int = 1) -> subprocess.Popen:
        environment = quick.environment(num_devices)
        command = [sys.executable, "-W", "error", "-c", code, *map(str, args)]
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=pathlib.Path(__file__).parent,
        )  # fmt: skip

    return start


@pytest.fixture
def lqd_train(request):
    """Starts `lqd train` in a process of its own, as strict as the suite and compiling as the suite does."""
    started = []

    def start(out, settings, *more, num_devices=1):
        environment = quick.environment(num_devices)
        command = [sys.executable, "-W", "error", "-m", "lqd", "train", "--out", str(out), *flags(settings), *more]
        started.append(
            subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def settled(monkeypatch):
    """The config that a call settles on, without running it."""

    def reach(config, *args, **settings):
        raise Reached(config)

    monkeypatch.setattr(trainer, "run", reach)

    def settle(**settings):
        with pytest.raises(Reached) as reached:
            train(quiet=True, **settings)
        return reached.value.args[0]

    return settle
