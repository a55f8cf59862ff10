"""pycma's CMA-ES with restarts on landscapes: the specialist for the best solution, many runs in lockstep.

16 points a generation; the rest is as pycma's documentation has it: a first step of a quarter of the search domain's
width, and restarts with twice the population each (IPOP; its `incpopsize=2`), from a point that is drawn anew. Every
run hands out 16 points at a time, however large its population is, so that the points of all runs are evaluated in one
call and each has exactly its budget. Points stay in the box by pycma's own transformation.
"""

import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lqd.errors import InvalidInput
from lqd.tasks.bbob.instances import LandscapeBatch

NAME = "cma-es"
AT_ONCE = 16  # points, and the first population
SHARE = 0.25  # of the box's width: the first step
TIMES = 2  # the population after a restart


def is_installed() -> bool:
    return importlib.util.find_spec("cma") is not None


def described() -> dict[str, Any]:
    """What its results depend on."""
    version = importlib.metadata.version("cma")
    return {"cma": version, "popsize": AT_ONCE, "sigma0": SHARE, "incpopsize": TIMES, "x0": "uniform"}


def _pycma(x0: np.ndarray, sigma0: float, box: tuple[float, float], popsize: int, rng: np.random.Generator):
    """One CMA-ES with random numbers of its own: by default pycma's come from one generator for all."""
    import cma

    options = {
        "popsize": popsize, "bounds": list(box), "verbose": -9, "seed": np.nan,
        "randn": lambda *shape: rng.standard_normal(shape),
    }  # fmt: skip
    return cma.CMAEvolutionStrategy(x0, sigma0, options)


class Run:
    """CMA-ES with restarts: `ask` for 16 points, `tell` their values, which are minimised."""

    def __init__(self, dim: int, box: tuple[float, float], rng: np.random.Generator, make: Callable = _pycma):
        self.dim, self.box, self.rng, self.make = dim, box, rng, make
        self.popsize, self.num_restarts = AT_ONCE, 0
        self._begin()

    def _begin(self) -> None:
        low, high = self.box
        self.search = self.make(
            self.rng.uniform(low, high, self.dim), SHARE * (high - low), self.box, self.popsize, self.rng
        )
        self.asked, self.values = np.asarray(self.search.ask()), list[float]()

    def ask(self) -> Float[np.ndarray, "16 n"]:
        return self.asked[len(self.values) :][:AT_ONCE]

    def tell(self, values: Float[np.ndarray, " 16"]) -> None:
        self.values += values.tolist()
        if len(self.values) < self.popsize:
            return
        self.search.tell(list(self.asked), self.values)
        if self.search.stop():
            self.popsize, self.num_restarts = TIMES * self.popsize, self.num_restarts + 1
            self._begin()
        else:
            self.asked, self.values = np.asarray(self.search.ask()), []


def best(tasks: LandscapeBatch, seeds: Sequence[Sequence[int]], num_evaluations: int) -> Float[np.ndarray, " K"]:
    """The best noiseless fitness that one run on each task found."""
    num_steps, rest = divmod(num_evaluations, AT_ONCE)
    if rest or num_steps < 1:
        raise InvalidInput(f"CMA-ES evaluates {AT_ONCE} points at a time, and {num_evaluations} are not a multiple.")
    low, high = (float(np.asarray(end)[0]) for end in tasks.bounds)
    dims = np.concatenate([np.asarray(instance.num_dims) for instance in tasks.instances])
    runs = [
        Run(int(dim), (low, high), np.random.default_rng(list(seed))) for dim, seed in zip(dims, seeds, strict=True)
    ]
    found, x = np.full(len(runs), -np.inf), np.zeros((len(runs), AT_ONCE, tasks.dim), np.float32)  # padding is 0
    for _ in range(num_steps):
        for one, run in zip(x, runs, strict=True):
            one[:, : run.dim] = run.ask()
        fitness = np.asarray(_noiseless(tasks, jnp.asarray(x)), np.float64)
        found = np.maximum(found, fitness.max(axis=1))
        for values, run in zip(fitness, runs, strict=True):
            run.tell(-values)
    return found


@jax.jit
def _noiseless(tasks: LandscapeBatch, x: Float[Array, "K 16 n"]) -> Float[Array, "K 16"]:
    return tasks.noiseless(x)


def by_function(tasks: LandscapeBatch) -> dict[str, LandscapeBatch]:
    """The tasks of each function alone."""
    return {
        name: LandscapeBatch((instance,), (name,))
        for name, instance in zip(tasks.functions, tasks.instances, strict=True)
    }


def of_every_function(
    tasks: LandscapeBatch,
    seeds: Mapping[str, Sequence[Sequence[int]]],
    num_evaluations: int,
    done: Callable[[str, Float[np.ndarray, " K"], float], None],
) -> None:
    """`best` on the tasks of each function that has seeds, several functions at a time in processes of their own.

    What a function gave, and in how many seconds, is handed to `done` at once: an interruption loses little.
    """
    alone = {name: jax.tree.map(np.asarray, one) for name, one in by_function(tasks).items() if name in seeds}
    if not alone:
        return
    with _single_threaded(), ProcessPoolExecutor(
        min(len(alone), os.cpu_count() or 1), multiprocessing.get_context("spawn"), _on_cpu
    ) as pool:  # fmt: skip
        begun = {pool.submit(_timed, one, seeds[name], num_evaluations): name for name, one in alone.items()}
        try:
            for future in as_completed(begun):
                done(begun[future], *future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _timed(*given) -> tuple[Float[np.ndarray, " K"], float]:
    begun = time.perf_counter()
    return best(*given), time.perf_counter() - begun


def _on_cpu() -> None:
    """A worker leaves the accelerator to the process that it works for."""
    jax.config.update("jax_platforms", "cpu")


@contextlib.contextmanager
def _single_threaded():
    """Workers that are started here have linear algebra of one thread each: their matrices are small."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
