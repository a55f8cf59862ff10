"""`optimize`: the door for people with a function."""

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checks
from lqd.ask_tell import AskTell
from lqd.errors import EvaluationFailed, Interrupted, InvalidInput
from lqd.evolution import driver
from lqd.evolution.driver import Rows
from lqd.evolution.loop import Faults
from lqd.result import Result, history, make_result
from lqd.settings import Settings
from lqd.tasks.function import FunctionTask
from lqd.tasks.task import Repeated, Task, start_scale

HOST_NOISE = 2**16  # a stream of random numbers that the loop does not use


class Progress(NamedTuple):
    """What a callback is given after each history row; `row` has the same names as a row of `history`."""

    generation: int
    num_evaluations: int
    row: dict[str, float]


def traceable(function: Callable) -> Callable:
    """Marks a function as pure JAX, so that `backend="auto"` compiles it into the loop."""
    try:
        setattr(function, "__lqd_traceable__", True)  # noqa: B010
    except (AttributeError, TypeError) as error:
        raise InvalidInput(f"{function!r} cannot be marked; wrap it in a function, or use backend='jax'.") from error
    return function


def _is_traceable(evaluate) -> bool:
    return isinstance(evaluate, Task | jax.stages.Wrapped) or getattr(evaluate, "__lqd_traceable__", False)


def optimize(
    evaluate: Callable[[Any], Any] | Task,
    *,
    dim: int | None = None,
    bounds=None,
    rule="dns",
    num_evaluations: int,
    population_size: int = 128,
    batch_size: int = 32,
    iso_sigma: float = 0.005,
    line_sigma: float = 0.05,
    x0=None,
    init_sigma: float | None = None,
    descriptor_bounds=None,
    minimize: bool = False,
    on_nan: str = "eliminate",
    callback: Callable[[Progress], bool | None] | None = None,
    backend: str = "auto",
    reproduction=None,
    archive_cells: int | None = None,
    qd_offset: float | None = None,
    time_limit_s: float | None = None,
    seed: int = 0,
) -> Result:
    """A diverse set of good solutions of `evaluate`.

    Args:
        evaluate: `evaluate(x (B, dim)) -> (fitness (B,), descriptor (B, D))`, or with a third element, a dictionary of
            further arrays kept with each solution. Or a task, e.g. `lqd.tasks.make("arm")`. Fitness: NaN is handled as
            `on_nan` says, `-inf` means infeasible, `+inf` is an error.
        dim: Length of a solution; a task knows its own.
        bounds: `(low, high)`, each a number or `dim` of them; None: unbounded, started around `x0` (or the origin) with
            scale `init_sigma`. A task knows its own.
        rule: Who survives: a name (`lqd rules` lists them), a file of weights, a rule, or your own function
            `(key, fitness (P,), descriptor (P, D)) -> scores (P,)`.
        num_evaluations: Budget, the start population included; the largest whole number of batches in it is used.
        population_size: Solutions kept.
        batch_size: Solutions evaluated per generation; `evaluate` never sees more at once on the host.
        iso_sigma: Scale of the isotropic variation, in units of x.
        line_sigma: Scale of the variation along the line between two parents, relative to their distance.
        x0: `(dim,)`: the start population is normal around it. `(m, dim)`: it holds these points themselves.
        init_sigma: Scale of the start population around `x0`, and without bounds; default 1, or what a task says.
        descriptor_bounds: `(low, high)` of the descriptors; needed by MAP-Elites and `archive_cells`.
        minimize: The function is to be minimised; results come back in its own sign.
        on_nan: `"eliminate"` drops a solution whose fitness is NaN (or whose descriptor is not finite) and counts it;
            `"raise"` names it.
        callback: Called with a `Progress` after each history row; return True to stop.
        backend: `"jax"` compiles a traceable function into the loop; `"host"` calls it as it is, with NumPy arrays;
            `"auto"` is host, unless the function is a task, wrapped in `jax.jit`, or marked by `lqd.traceable`.
        reproduction: An operator `(key, x1 (dim,), x2 (dim,)) -> x (dim,)` instead of iso-line variation.
        archive_cells: Also keep the best solution ever seen in each of so many cells, in `result.archive`.
        qd_offset: Fitness that counts as nothing in the archive's QD score, in the sign of your function.
        time_limit_s: Stop after so many seconds, with what there is.
        seed: Equal seeds give equal results on equal machines.

    Raises:
        InvalidInput: An argument or a returned value cannot be used.
        EvaluationFailed: `evaluate` raised; its `result` holds everything evaluated before.
        Interrupted: Ctrl-C; its `result` holds everything evaluated before.
    """
    if isinstance(evaluate, Task):
        dim = evaluate.dim if dim is None else dim
        if dim != evaluate.dim:
            raise InvalidInput(f"dim is {dim}, but the task {evaluate.name!r} has {evaluate.dim}; leave dim out.")
        if bounds is not None or minimize:
            raise InvalidInput(
                f"the task {evaluate.name!r} has its own bounds and direction; leave bounds and minimize out."
            )
        bounds = evaluate.bounds
        init_sigma = start_scale(evaluate) if init_sigma is None else init_sigma
        descriptor_bounds = evaluate.descriptor_bounds if descriptor_bounds is None else descriptor_bounds
    elif not callable(evaluate):
        raise InvalidInput(f"evaluate must be a function of a batch of solutions, or a task, got {evaluate!r}.")
    elif dim is None:
        raise InvalidInput("dim, the length of a solution, is missing: optimize(evaluate, dim=..., ...).")
    settings = Settings(
        dim=dim, bounds=bounds, rule=rule, population_size=population_size, batch_size=batch_size,
        iso_sigma=iso_sigma, line_sigma=line_sigma, x0=x0, init_sigma=init_sigma, descriptor_bounds=descriptor_bounds,
        minimize=minimize, on_nan=on_nan, reproduction=reproduction, archive_cells=archive_cells, qd_offset=qd_offset,
        seed=seed,
    )  # fmt: skip
    num_generations = settings.num_generations(num_evaluations)
    if time_limit_s is not None:
        time_limit_s = checks.real("time_limit_s", time_limit_s, positive=True)
    checks.one_of("backend", backend, ("auto", "jax", "host"))
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function, got {callback!r}.")
    if backend == "jax" or (backend == "auto" and _is_traceable(evaluate)):
        return _optimize_jax(evaluate, settings, num_generations, callback, time_limit_s)
    return _optimize_host(evaluate, settings, num_generations, callback, time_limit_s)


def _optimize_host(evaluate, settings: Settings, num_generations: int, callback, time_limit_s) -> Result:
    search = AskTell.of(settings)
    evaluate = _host_function(evaluate, settings)
    total = settings.population_size + num_generations * settings.batch_size
    begun = time.perf_counter()
    stopped_by = None
    try:
        while search.num_evaluations < total and stopped_by is None:
            x = search.ask()
            try:
                returned = evaluate(x.copy())
            except Exception as error:
                raise _failed(error, _partial(search)) from error
            fitness, descriptor, extras = checks.evaluation(returned, len(x), search.descriptor_dim)
            new_rows = search.tell(x, fitness, descriptor, extras)
            if _told_to_stop(callback, new_rows, settings):
                stopped_by = "callback"
            elif time_limit_s is not None and time.perf_counter() - begun > time_limit_s:
                stopped_by = "time limit" if search.num_evaluations < total else None
    except EvaluationFailed:
        raise
    except KeyboardInterrupt as error:
        raise _interrupted(_partial(search)) from error
    except Exception as error:  # a value that cannot be used, or the callback's own: what was found goes with it
        error.result = _partial(search)  # type: ignore[attr-defined]
        raise
    return search.result(stopped_by)


def _partial(search: AskTell) -> Result | None:
    return search.result("error") if search.num_evaluations else None


def _failed(error: Exception, result: Result | None) -> EvaluationFailed:
    num = 0 if result is None else result.num_evaluations
    reason = str(error).strip().split("\n")[0]
    return EvaluationFailed(
        f"evaluate raised {type(error).__name__} after {num} evaluations: {reason}. "
        f"What was found before is in this exception's `result`.",
        result,
    )


def _interrupted(result: Result | None) -> Interrupted:
    num = 0 if result is None else result.num_evaluations
    return Interrupted(f"interrupted after {num} evaluations; what was found is in this exception's `result`.", result)


def _host_function(evaluate, settings: Settings):
    """A task as a plain function of x; noise gets a new key in every call."""
    if not isinstance(evaluate, Task):
        return evaluate
    stream = jax.random.fold_in(settings.key()[0], HOST_NOISE)
    keys = (jax.random.fold_in(stream, number) for number in itertools.count())

    def call(x):
        evaluation = evaluate.evaluate(next(keys), jnp.asarray(x))
        return evaluation.fitness, evaluation.descriptor, evaluation.extras

    return call


def _told_to_stop(callback, rows: list[Rows], settings: Settings) -> bool:
    """Shows every new row to the callback, then says whether it asked to stop."""
    if callback is None or not rows:
        return False
    records = history(Rows.join(rows), 0, settings.sign).to_dict("records")
    answers = [callback(Progress(int(row["generation"]), int(row["num_evaluations"]), row)) for row in records]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


def _optimize_jax(evaluate, settings: Settings, num_generations: int, callback, time_limit_s) -> Result:
    task, descriptor_dim = _as_task(evaluate, settings)

    raised: list[BaseException] = []

    def look(state, rows: Rows) -> bool:
        try:
            if _told_to_stop(callback, [rows], settings):
                return True
        except BaseException as error:  # kept until the result is there to go with it
            raised.append(error)
            return True
        return _fault(state.faults, settings) is not None

    try:
        run = driver.run(
            settings.key(), Repeated(task, 1), settings.resolved_rule(descriptor_dim), settings.operator(),
            num_generations=num_generations, population_size=settings.population_size,
            batch_size=settings.batch_size, start=settings.start(), centroids=settings.centroids(descriptor_dim),
            qd_offset=settings.offset(), look=look, look_every_row=callback is not None, time_limit_s=time_limit_s,
        )  # fmt: skip
    except InvalidInput:
        raise
    except Exception as error:
        raise _failed(error, None) from error
    fault = _fault(run.state.faults, settings)
    stopped_by = "error" if fault is not None or raised else run.stopped_by
    info = settings.info() | {"compile_s": run.compile_s, "run_s": run.run_s}
    result = make_result(run.state, run.rows, minimize=settings.minimize, stopped_by=stopped_by, info=info)
    if run.stopped_by == "interrupt" or any(isinstance(error, KeyboardInterrupt) for error in raised):
        raise _interrupted(result)
    if run.failure is not None:
        raise _failed(run.failure, result) from run.failure
    for reason in (*raised, *([fault] if fault else [])):
        reason.result = result  # type: ignore[attr-defined]
        raise reason
    return result


def _fault(faults: Faults, settings: Settings) -> InvalidInput | None:
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
                f"backend='host' calls it as it is."
            ) from error
        descriptor_dim = checks.traced_evaluation(returned, num, descriptor_dim or None)
    sign = jnp.float32(settings.sign)
    return FunctionTask(settings.box(), sign, evaluate, settings.dim, descriptor_dim), descriptor_dim
