"""`optimize`: the door for people with a function."""

from collections.abc import Callable
from typing import Any

import jax

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.search import compiled, defaults, host, one_by_one
from lqd.search.progress import Callback, bar
from lqd.search.result import Result
from lqd.search.saving import CheckpointFolder
from lqd.search.settings import Settings
from lqd.tasks.task import Task, start_scale


def traceable(function: Callable) -> Callable:
    """Marks a function as pure JAX, so that `backend="auto"` compiles it into the loop."""
    try:
        setattr(function, "__lqd_traceable__", True)  # noqa: B010
    except (AttributeError, TypeError) as error:
        raise InvalidInput(
            f"{shown(function)} cannot be marked; wrap it in a function, or use backend='jax'."
        ) from error
    return function


def _is_traceable(evaluate) -> bool:
    return isinstance(evaluate, Task | jax.stages.Wrapped) or getattr(evaluate, "__lqd_traceable__", False)


def optimize(
    evaluate: Callable[[Any], Any] | Task,
    *,
    dim: int | None = None,
    bounds=None,
    rule=defaults.RULE,
    num_evaluations: int,
    population_size: int | None = None,
    batch_size: int | None = None,
    variation=defaults.VARIATION,
    iso_sigma=None,
    line_sigma: float | None = None,
    x0=None,
    init_sigma=None,
    descriptor_bounds=None,
    outside: str = "edge",
    minimize: bool = False,
    on_nan: str = "eliminate",
    callback: Callback | None = None,
    progress: bool | None = None,
    backend: str = "auto",
    batch: bool = True,
    reproduction=None,
    archive_cells: int | None = None,
    qd_offset: float | None = None,
    time_limit_s: float | None = None,
    executor: Any = None,
    steady_state: bool = False,
    checkpoint: Any = None,
    resume: bool = False,
    recheck: bool = True,
    seed: int = 0,
) -> Result:
    """A diverse set of good solutions of `evaluate`.

    Args:
        evaluate: `evaluate(x (B, dim)) -> (fitness (B,), descriptor (B, D))`, or with a third element, a dictionary of
            further arrays to keep with each solution. Or a task, e.g. `lqd.tasks.make("arm")`. Fitness: NaN is handled
            as `on_nan` says, `-inf` means infeasible, `+inf` is an error.
        dim: Length of a solution; for a task, leave it out.
        bounds: `(low, high)`, each a number or `dim` of them; or one pair per dimension, `[(low, high), ...]`. None:
            unbounded, started around `x0` (or the origin) with scale `init_sigma`. For a task, leave them out.
        rule: Who survives: a name (`lqd rules` lists them), the folder of a training run, a file of weights, a rule, or
            your own function `(key, fitness (P,), descriptor (P, D)) -> scores (P,)`.
        num_evaluations: Budget, including the initial population. It is rounded down to whole batches;
            `result.num_evaluations` is the number made.
        population_size: Solutions kept; by default, a number that suits the budget.
        batch_size: Solutions evaluated per generation; by default, a quarter of those kept. `evaluate` never sees more
            at once on the host.
        variation: How children are made. `"spread"` needs no tuning: steps follow the spread of the population, in
            units of the bounds. `"led"`: steps are inherited, and a rule of feature recipe 3 decides who breeds and how
            far; the default for such a rule, as `"spread"` is for all others. `"paper"` is the paper's loop to the bit:
            absolute steps (0.005 and 0.05), descriptors as they are, 128 solutions in batches of 32. Or an object of
            your own (`lqd.evolution.variation`).
        iso_sigma: Use a fixed isotropic step, relative to the bounds (or, without bounds, to `init_sigma`): a number,
            or one for each dimension. With `variation="paper"`, in units of x.
        line_sigma: Use a fixed step along the line between two parents, relative to their distance.
        x0: `(dim,)`: the initial population is normally distributed around it. `(m, dim)`: it contains these points; if
            there are more than it has room for, they compete for their places.
        init_sigma: Scale of the initial population around `x0`, or without bounds: a number, or one for each dimension;
            default 1, or what the task says.
        descriptor_bounds: `(low, high)` of the descriptors: the range that counts. Needed by MAP-Elites and
            `archive_cells`. NS, DNS and learned rules see descriptors in units of it; without bounds, in units of the
            spread of those present.
        outside: How those rules see a solution outside `descriptor_bounds`. `"edge"`: as if it were at the edge, so
            that nothing is gained by going farther; `"free"`: as it is.
        minimize: Minimise the function instead of maximising it; results keep its sign.
        on_nan: `"eliminate"` drops a solution whose fitness is NaN (or whose descriptor is not finite) and counts it;
            `"raise"` names it.
        callback: Called with a `Progress` after each history row; return True to stop.
        progress: Show a progress bar with the best fitness and the time left; default on terminals and in notebooks.
        backend: `"jax"` compiles a traceable function into the loop; `"host"` calls it as it is, with NumPy arrays;
            `"auto"` is host, unless the function is a task, wrapped in `jax.jit`, or marked by `lqd.traceable`.
        batch: False: `evaluate` is a function of one solution, `x (dim,) -> (fitness, descriptor (D,))`.
        reproduction: An operator `(key, x1 (dim,), x2 (dim,)) -> x (dim,)` in units of x, instead of our variation.
        archive_cells: Also keep the best solution ever seen in each of this many cells, in `result.archive`.
        qd_offset: Fitness that counts as zero in the archive's QD score, in the sign of your function.
        time_limit_s: Stop after this many seconds and return the current result.
        executor: Evaluate solutions in parallel, one `x (1, dim)` per call: a number of processes, an executor (of
            `concurrent.futures`, Dask's `client.get_executor()`, `mpi4py.futures`), or a function that makes one. A
            solution whose worker dies is tried again; if its workers keep dying, it counts as infeasible
            (`result.num_failed`).
        steady_state: With an executor, solutions compete as they finish, instead of waiting for the slowest of a batch;
            `batch_size` of them are being evaluated at any time. Results then depend on who finishes first.
        checkpoint: Folder to save the run in, from time to time and at the end.
        resume: Continue the run in the folder, as if it had never stopped; also with a larger `num_evaluations`, or
            with other steps. Sizes that are not given stay as they were. In an empty folder, a new run begins.
        recheck: On resume, evaluate the first batch again (in an executor, its first four solutions) to check that the
            function is still the same. Another function is refused, a noisy one is not. False skips the check.
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
        raise InvalidInput(f"evaluate must be a function of a batch of solutions, or a task, got {shown(evaluate)}.")
    elif dim is None:
        raise InvalidInput("dim, the length of a solution, is missing: optimize(evaluate, dim=..., ...).")
    folder = None if checkpoint is None else CheckpointFolder(checkpoint, resume)
    if folder is None and checks.flag("resume", resume):
        raise InvalidInput("resume=True continues a saved run: give its folder as checkpoint=.")
    kept = {} if folder is None else folder.sizes()
    population_size, batch_size = defaults.completed(
        kept.get("population_size") if population_size is None else population_size,
        kept.get("batch_size") if batch_size is None else batch_size,
        defaults.sizes(checks.budget(num_evaluations)),
        isinstance(variation, str) and variation == "paper",
    )
    settings = Settings(
        dim=dim, bounds=bounds, rule=rule, population_size=population_size, batch_size=batch_size,
        variation=variation, iso_sigma=iso_sigma, line_sigma=line_sigma, x0=x0, init_sigma=init_sigma,
        descriptor_bounds=descriptor_bounds, outside=outside, minimize=minimize, on_nan=on_nan,
        reproduction=reproduction, archive_cells=archive_cells, qd_offset=qd_offset, seed=seed,
    )  # fmt: skip
    num_generations = settings.num_generations(num_evaluations)
    time_limit_s = checks.time_limit(time_limit_s)
    checks.one_of("backend", backend, ("auto", "jax", "host"))
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function, got {shown(callback)}.")
    options: dict[str, Any] = {"callback": callback, "time_limit_s": time_limit_s, "folder": folder}
    options["recheck"] = checks.flag("recheck", recheck)
    if progress is not None:
        checks.flag("progress", progress)
    if checks.flag("steady_state", steady_state) and executor is None:
        raise InvalidInput("steady_state=True is for solutions evaluated in parallel: give executor= as well.")
    is_compiled = executor is None and (backend == "jax" or (backend == "auto" and _is_traceable(evaluate)))
    if not checks.flag("batch", batch):
        if isinstance(evaluate, Task):
            raise InvalidInput(f"batch=False is for functions; the task {evaluate.name!r} takes batches.")
        evaluate = one_by_one.traced(evaluate) if is_compiled else one_by_one.OneByOne(evaluate)
    if executor is not None:
        if backend == "jax" or isinstance(evaluate, Task):
            what = f"the task {evaluate.name!r}" if isinstance(evaluate, Task) else "backend='jax'"
            raise InvalidInput(f"executor is for functions on the host, but {what} is compiled; leave one of them out.")
        options |= {"executor": executor, "steady_state": steady_state}
    run = compiled.optimize if is_compiled else host.optimize
    total = settings.population_size + num_generations * settings.batch_size
    with bar(progress, total, settings.sign) as shown_bar:
        return run(evaluate, settings, num_generations, bar=shown_bar, **options)
