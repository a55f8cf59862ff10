"""A search whose function is compiled into the loop."""

import contextlib
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from lqd import checks
from lqd.errors import InvalidInput
from lqd.evolution import driver, loop
from lqd.evolution.driver import Rows
from lqd.evolution.loop import State
from lqd.evolution.variation import first_traits
from lqd.io.files import understood
from lqd.search import same_task, saving
from lqd.search.growth import Growth
from lqd.search.progress import Bar, Callback, failed, interrupted, told_to_stop
from lqd.search.result import Result, make_result
from lqd.search.same_task import MOST, Answers, Row
from lqd.search.saving import CheckpointFolder
from lqd.search.settings import Settings
from lqd.tasks.function import FunctionTask
from lqd.tasks.task import Repeated, Task
from lqd.types import Population


def optimize(
    evaluate,
    settings: Settings,
    num_generations: int,
    *,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    folder: CheckpointFolder | None = None,
    recheck: bool = True,
    bar: Bar | None = None,
) -> Result:
    """See `lqd.optimize`."""
    task, descriptor_dim = _as_task(evaluate, settings)
    search = _Search(task, descriptor_dim, settings)
    with folder.lock() if folder is not None else contextlib.nullcontext():
        total = settings.population_size + num_generations * settings.batch_size
        saved = None if folder is None else folder.saved(settings, "jax", total, evaluate)
        before, first = None, None
        if folder is not None and saved is not None:
            before, first = search.restored(saved), saved.first
            if recheck and first is not None and not same_task.says_all(evaluate):
                same_task.check(folder.path, first, search.answers)
        search.described = same_task.described(evaluate)
        return _run(search, num_generations, callback, time_limit_s, folder, before, first, bar)


class _Search:
    """What stays the same in all calls of the loop."""

    def __init__(self, task: Task, descriptor_dim: int, settings: Settings):
        self.tasks, self.settings = Repeated(task, 1), settings
        self.rule = settings.resolved_rule(descriptor_dim)
        self.variation = settings.resolved_variation()
        self.start, self.centroids = settings.start(), settings.centroids(descriptor_dim)
        self.described: dict[str, Any] | None = None

    def _begin(self, key) -> State:
        return loop.begin(
            key, self.tasks, self.rule, self.settings.population_size, self.start, self.centroids, self.variation
        )

    def answers(self) -> list[Row]:
        """The answers for the initial population, evaluated again."""
        try:
            return first_answers(jax.jit(self._begin)(self.settings.key())).rows
        except KeyboardInterrupt as error:
            raise interrupted(None) from error
        except Exception as error:  # a host callback may raise anything
            raise failed(error, None) from error

    def restored(self, saved: saving.Saved) -> tuple[list[State], Rows]:
        """State and history of a saved run."""
        key = self.settings.key()
        like = jax.eval_shape(self._begin, key)
        with understood(saved.path):
            state = saved.state(dataclasses.replace(like, key=key), first_traits(self.variation, 1, self.settings.dim))
            rows = saved.rows(state, self.settings.offset())
            if rows is None or rows.generation[0] != 0:
                raise ValueError("no history from the beginning")
            return [state], rows


def first_answers(state: State) -> Answers:
    """Of a start population."""
    population = state.population
    return same_task.answers(*(part[0, :MOST] for part in (population.x, population.fitness, population.descriptor)))


def _run(
    search: _Search, num_generations: int, callback, time_limit_s, folder: CheckpointFolder | None, before,
    first: Answers | None, bar: Bar | None,
) -> Result:  # fmt: skip
    settings = search.settings
    raised: list[BaseException] = []
    growth = Growth()

    def save(state: State, history: list[Rows], now: bool = False) -> None:
        if folder is None:
            return
        num_told = settings.population_size + settings.batch_size * int(state.generation)
        description = {"backend": "jax", "num_told": num_told, "task": search.described}
        arrays = {} if first is None else first.arrays()
        folder.keep(lambda path: saving.write(path, settings, state, Rows.join(history), arrays, description), now)

    def look(states: list[State], history: list[Rows]) -> bool:
        nonlocal first
        try:
            if before is None and first is None:  # this is the start
                first = first_answers(states[0])
            growth.look(search.rule, states[0].population, int(states[0].generation), first)
            if bar is not None:
                bar.show(int(history[-1].num_evaluations[-1]), history[-1:])
            if told_to_stop(callback, history[-1:], settings.sign):
                return True
            if _fault(states[0], settings) is None:
                save(states[0], history)
        except BaseException as error:  # kept until there is a result to raise it with
            raised.append(error)
            return True
        return _fault(states[0], settings) is not None

    try:
        run = driver.run(
            settings.key(), search.tasks, (search.rule,), search.variation,
            num_generations=num_generations, population_size=settings.population_size,
            batch_size=settings.batch_size, start=search.start, centroids=search.centroids,
            measured_with=settings.offset(), look=look, look_every_row=callback is not None,
            time_limit_s=time_limit_s, before=before,
        )  # fmt: skip
    except InvalidInput:
        raise
    except Exception as error:
        raise failed(error, None) from error
    (state,) = run.states
    fault = _fault(state, settings)
    is_interrupted = run.stopped_by == "interrupt" or any(isinstance(error, KeyboardInterrupt) for error in raised)
    has_failed = fault is not None or bool(raised)
    stopped_by = "interrupt" if is_interrupted else "error" if has_failed else run.stopped_by
    if fault is None:
        with contextlib.suppress(*[Exception] * bool(raised)):  # another error is being raised, and matters more
            save(state, [run.rows], now=True)
    info = settings.info() | {"task": search.tasks.task.name, "compile_s": run.compile_s, "run_s": run.run_s}
    result = make_result(state, run.rows, minimize=settings.minimize, stopped_by=stopped_by, info=info)
    if is_interrupted:
        raise interrupted(result)
    if run.failure is not None:
        raise failed(run.failure, result) from run.failure
    for reason in (*raised, *([fault] if fault else [])):
        reason.result = result  # type: ignore[attr-defined]
        raise reason
    return result


@jax.jit
def _is_lost(parts: list[Population], others: list[Array]) -> Bool[Array, ""]:
    """Whether any individual has numbers that are not finite."""
    lost = [jnp.any(~jnp.isfinite(part.x) & part.filled[..., None]) for part in parts]
    return jnp.any(jnp.stack(lost + [jnp.any(~jnp.isfinite(x)) for x in others]))


def _fault(state: State, settings: Settings) -> InvalidInput | None:
    faults = state.faults
    first = [faults.nan_x, faults.infinite_x]  # those of which nothing else is left
    if _is_lost([state.population, state.best, *([] if state.archive is None else [state.archive.elites])], first):
        return checks.lost_genotypes(settings.reproduction is not None)
    num_nan, num_infinite = int(faults.num_nan[0]), int(faults.num_infinite[0])
    if num_infinite:
        return checks.infinite_fitness(num_infinite, np.asarray(faults.infinite_x[0]), settings.minimize)
    if num_nan and settings.on_nan == "raise":
        return checks.nan_fitness(num_nan, np.asarray(faults.nan_x[0]))
    return None


def _as_task(evaluate, settings: Settings) -> tuple[Task, int]:
    """A function as a task, its shapes checked by tracing alone."""
    if isinstance(evaluate, Task):
        return evaluate, evaluate.descriptor_dim
    descriptor_dim = 0
    for num in {settings.population_size, settings.batch_size}:
        try:
            returned = jax.eval_shape(evaluate, jax.ShapeDtypeStruct((num, settings.dim), jnp.float32))
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            raise InvalidInput(
                f"evaluate cannot be traced by JAX ({type(error).__name__}: {reason}). "
                f"Use backend='host' to call it as it is."
            ) from error
        descriptor_dim = checks.traced_evaluation(returned, num, descriptor_dim or None)
    sign = jnp.float32(settings.sign)
    return FunctionTask(settings.box(), sign, evaluate, settings.dim, descriptor_dim), descriptor_dim
