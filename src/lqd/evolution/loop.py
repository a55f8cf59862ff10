"""The one loop: start, reproduce, evaluate, compete, select. Survival is written here, once.

Everything carries a leading axis of `K` tasks (or seeds of one task); training maps the same functions over many
rules. Random numbers come from one key per task and the number of the generation, so a run does not depend on how it
is cut into calls, and the random numbers are shared when only the rule differs.

There is one loop over generations, `evolve`, which training, benches and searches all call. Their number is traced:
another budget, seed, task instance or set of weights compiles nothing new.

An ask-tell front end uses the same `start_points`, `children` and `absorb` with the evaluation done elsewhere.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lqd.evolution import archive as passive
from lqd.evolution import memory, metrics, variation
from lqd.evolution.archive import Archive
from lqd.evolution.faults import Faults, recorded
from lqd.evolution.memory import Memory
from lqd.evolution.sums import rounded
from lqd.evolution.variation import ANYWHERE, Children, Operator, Start, Variation, clip
from lqd.rules import protocol
from lqd.rules.protocol import Rule
from lqd.tasks.task import Box, TaskBatch
from lqd.types import Evaluation, Population, pytree

POPULATION_SIZE, BATCH_SIZE = 128, 32  # the paper's
DTYPE = jnp.float32  # of everything that evolves, also where the user has switched JAX to 64 bits


@pytree
class State:
    """Everything that a run carries from one generation to the next."""

    key: Key[Array, " K"]
    generation: Int[Array, ""]
    population: Population  # (K, N, ...)
    notes: object  # what the rule noted on each individual, (K, N, ...)
    best: Population  # the best solution ever evaluated, (K, 1, ...)
    archive: Archive | None  # (K, C, ...)
    faults: Faults
    memory: Memory | None = None  # of what was evaluated lately, where the variation asks for it, (K, ...)


def _keys(state_key: Key[Array, " K"], stream: int, generation: Int[Array, ""]) -> Key[Array, " K"]:
    """Keys of one stream (start, reproduction, evaluation, competition) in one generation."""
    return jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, stream), generation))(state_key)


START, REPRODUCTION, EVALUATION, COMPETITION = range(4)


S = TypeVar("S")
Notes = TypeVar("Notes")


def _draw_start(key, num: int, dim: int, bounds: Box | None, start: Start) -> Float[Array, "num n"]:
    """Uniform in the box; around `x0`, or without a box around the origin, normal with scale `init_sigma`."""
    if bounds is not None and start.x0 is None:
        low, high = bounds
        return low + jax.random.uniform(key, (num, dim), low.dtype) * (high - low)
    centre = jnp.zeros((1, dim), jnp.float32) if start.x0 is None else jnp.atleast_2d(start.x0)
    centre = centre[jnp.arange(num) % centre.shape[0]]
    return clip(centre + start.init_sigma * jax.random.normal(key, (num, dim), jnp.float32), bounds)


def start_points(
    key: Key[Array, " K"], num: int, dim: int, bounds: Box | None, start: Start = ANYWHERE
) -> Float[Array, "K num n"]:
    """The first `num` genotypes of each task. Several given points are taken as they are, and filled up around them."""
    given = start.x0[:num] if start.x0 is not None and start.x0.ndim == 2 else jnp.zeros((0, dim), jnp.float32)

    def draw(key):
        return jnp.concatenate([given, _draw_start(key, num - given.shape[0], dim, bounds, start)])

    return jax.vmap(draw)(_keys(key, START, jnp.int32(0)))


def num_given_batches(start: Start, population_size: int, batch_size: int) -> int:
    """How many batches the given points make that a start population has no room for; the last one is filled up."""
    num = start.x0.shape[0] if start.x0 is not None and start.x0.ndim == 2 else 0
    return max(0, -((population_size - num) // batch_size))


def empty_state(
    key: Key[Array, " K"], rule: Rule, like: Population, num: int, centroids=None, uses_memory: bool = False
) -> State:
    """A state with `num` empty slots; `like` (K, anything, ...) gives the shapes."""
    num_tasks = key.shape[0]

    def slots(size):
        return Population(
            jnp.zeros((num_tasks, size, like.x.shape[-1]), like.x.dtype),
            jnp.full((num_tasks, size), -jnp.inf, like.fitness.dtype),
            jnp.zeros((num_tasks, size, like.descriptor.shape[-1]), like.descriptor.dtype),
            {name: jnp.zeros((num_tasks, size, *v.shape[2:]), v.dtype) for name, v in like.extras.items()},
        )

    population, traits = slots(num), like.traits
    if traits is not None:
        traits = jnp.zeros((num_tasks, num, traits.shape[-1]), traits.dtype)
    archive = None
    if centroids is not None:
        archive = jax.vmap(lambda one: Archive.empty(centroids, one))(population)
    count, x = jnp.zeros(num_tasks, jnp.int32), jnp.zeros((num_tasks, like.x.shape[-1]), like.x.dtype)
    return State(
        key,
        jnp.int32(0),
        dataclasses.replace(population, traits=traits),
        jax.vmap(partial(protocol.annotate, rule))(population.descriptor),
        slots(1),
        archive,
        Faults(count, count, x, x),
        memory.empty(population) if uses_memory else None,
    )


def children(
    state: State,
    counter: Int[Array, ""],
    operator: Operator | Variation,
    bounds: Box | None,
    batch_size: int,
    start: Start = ANYWHERE,
) -> Children:
    """A batch of children per task (K, B, ...); fresh starts where there are no parents.

    Given points that the start population had no room for come first, in batches of their own.
    """
    varied = variation.as_variation(operator)
    num, dim = state.population.x.shape[1:]

    def breed(key, population, known):
        _, _, key_fresh = jax.random.split(key, 3)
        also = {} if known is None else {"memory": known}
        bred = varied.children(key, population, bounds, start, batch_size, **also)
        return jax.lax.cond(
            jnp.any(population.filled),
            lambda: bred,
            lambda: Children(
                _draw_start(key_fresh, batch_size, dim, bounds, start), variation.first_traits(varied, batch_size, dim)
            ),
        )

    bred = jax.vmap(breed)(_keys(state.key, REPRODUCTION, counter), state.population, state.memory)
    if num_given := num_given_batches(start, num, batch_size):
        points = start_points(state.key, num + num_given * batch_size, dim, bounds, start)
        points = jax.lax.dynamic_slice_in_dim(points, num + counter * batch_size, batch_size, axis=1)
        given = Children(points, _first(varied, (state.key.shape[0], batch_size, dim)))
        bred = jax.tree.map(lambda given, bred: jnp.where(counter < num_given, given, bred), given, bred)
    return bred._replace(x=_stored(bred.x, operator))


def offspring(*arguments, **given) -> Float[Array, "K B n"]:
    """The genotypes of `children`, with the same arguments."""
    return children(*arguments, **given).x


def _stored(x: Float[Array, "K B n"], operator: Operator | Variation | None) -> Float[Array, "K B n"]:
    """Genotypes of a variation are rounded before anything is computed of them: a compiled function sees the bits that
    one on the host does. Those of a plain operator may be fused with their evaluation, as they always were."""
    return rounded(x) if isinstance(operator, Variation) else x


def _first(operator: Operator | Variation | None, shape: tuple[int, ...]) -> Float[Array, "K num T"] | None:
    """Of so many tasks, individuals and dimensions."""
    num_tasks, num, dim = shape
    traits = variation.first_traits(operator, num, dim)
    return None if traits is None else jnp.broadcast_to(traits, (num_tasks, *traits.shape))


def survive(scores: Float[Array, " P"], union: Population, notes: Notes, num: int) -> tuple[Population, Notes]:
    """The `num` best by score, ties going to the lower index; NaN counts as `-inf`, which leaves a slot empty."""
    scores = jnp.where(jnp.isnan(scores) | ~union.filled, -jnp.inf, scores)
    scores = jnp.where(scores == 0, 0.0, scores)  # top_k ranks -0 below 0, and a tie would not be one
    top, index = jax.lax.top_k(scores, num)
    union, notes = jax.tree.map(lambda field: field[index], (union, notes))
    fitness = jnp.where(top > -jnp.inf, union.fitness, -jnp.inf)
    return dataclasses.replace(union, fitness=fitness), notes


def _concatenate(first, second, axis: int):
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=axis), first, second)


def absorb(
    state: State,
    counter: Int[Array, ""],
    rule: Rule,
    x: Float[Array, "K B n"],
    evaluation: Evaluation,
    competing: Bool[Array, ""] | bool = True,
    traits: Float[Array, "K B T"] | None = None,
    num_new: Int[Array, ""] | None = None,
) -> State:
    """Newcomers join, all compete, and the best N stay. While the first N arrive, nothing competes (`competing`).

    The first `num_new` of the rows are newcomers (by default all), the rest fills up the batch.

    Newcomers have `traits` where the population has some; the best solution and the archive are never parents, and have
    none.
    """
    faults, evaluation = recorded(state.faults, x, evaluation)
    newcomers = Population(x, evaluation.fitness, evaluation.descriptor, evaluation.extras)
    notes = _concatenate(state.notes, jax.vmap(partial(protocol.annotate, rule))(newcomers.descriptor), axis=1)
    union = _concatenate(state.population, dataclasses.replace(newcomers, traits=traits), axis=1)

    def select(key, union, notes):
        num, scores = state.population.x.shape[1], jnp.zeros_like(union.fitness)
        if competing is False:
            return survive(scores, union, notes, num)
        if hasattr(rule, "lead"):
            found, led = rule.lead(key, union.fitness, union.descriptor, union.traits)
            union = dataclasses.replace(union, traits=jnp.where(competing, led, union.traits))
        else:
            found = protocol.score(rule, key, union.fitness, union.descriptor, notes)
        return survive(jnp.where(competing, found, scores), union, notes, num)

    population, notes = jax.vmap(select)(_keys(state.key, COMPETITION, counter), union, notes)
    return State(
        state.key,
        counter + 1,
        population,
        notes,
        _best(state.best, newcomers),
        None if state.archive is None else jax.vmap(Archive.insert)(state.archive, newcomers),
        faults,
        memory.remembered(state.memory, newcomers, num_new),
    )


def _best(best: Population, newcomers: Population) -> Population:
    def fitter(best, newcomers):
        index = jnp.argmax(newcomers.fitness)
        better = newcomers.fitness[index] > best.fitness[0]
        return jax.tree.map(lambda old, new: jnp.where(better, new[index][None], old), best, newcomers)

    return jax.vmap(fitter)(best, newcomers)


def _bounds(tasks: TaskBatch) -> Box | None:
    return None if tasks.bounds is None else (tasks.bounds[0].astype(DTYPE), tasks.bounds[1].astype(DTYPE))


def _evaluate(tasks: TaskBatch, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
    evaluation = tasks.evaluate(key, x)
    return Evaluation(evaluation.fitness.astype(DTYPE), evaluation.descriptor.astype(DTYPE), evaluation.extras)


def begin(
    key: Key[Array, " K"],
    tasks: TaskBatch,
    rule: Rule,
    population_size: int,
    start: Start = ANYWHERE,
    centroids=None,
    operator: Operator | Variation | None = None,
) -> State:
    """Generation 0: `population_size` initial solutions, evaluated; nothing competes yet.

    `operator` is what the run will vary by, where that has traits.
    """
    return begin_together(key, tasks, (rule,), population_size, start, centroids=centroids, operator=operator)[0]


def begin_together(
    key: Key[Array, " K"],
    tasks: TaskBatch,
    rules: tuple[Rule, ...],
    population_size: int,
    start: Start = ANYWHERE,
    alter: Sequence[Callable | None] = (),
    centroids=None,
    operator: Operator | Variation | None = None,
) -> list[State]:
    """Generation 0 of several runs that differ in the rule, and so begin with the same points, evaluated once."""
    x = _stored(start_points(key, population_size, tasks.dim, _bounds(tasks), start), operator)
    keys = _keys(key, EVALUATION, jnp.int32(0))
    evaluation = _evaluate(tasks, keys, x)
    traits = _first(operator, x.shape)
    states = []
    for i, rule in enumerate(rules):
        change = alter[i] if alter else None
        mine = evaluation if change is None else change(keys, evaluation)
        like = Population(x, mine.fitness, mine.descriptor, mine.extras, traits)
        state = empty_state(key, rule, like, population_size, centroids, variation.uses_memory(operator))
        states.append(absorb(state, jnp.int32(-1), rule, x, mine, competing=False, traits=traits))
    return states


def propose(
    state: State,
    tasks: TaskBatch,
    operator: Operator | Variation,
    batch_size: int,
    start: Start = ANYWHERE,
) -> tuple[Children, Evaluation]:
    """One generation's children, and their evaluations."""
    bred = children(state, state.generation, operator, _bounds(tasks), batch_size, start)
    return bred, _evaluate(tasks, _keys(state.key, EVALUATION, state.generation + 1), bred.x)


def step(
    state: State,
    tasks: TaskBatch,
    rule: Rule,
    operator: Operator | Variation,
    batch_size: int,
    start: Start = ANYWHERE,
) -> State:
    """One generation."""
    return step_together([state], tasks, (rule,), operator, batch_size, start)[0]


def step_together(
    states: list[State],
    tasks: TaskBatch,
    rules: tuple[Rule, ...],
    operator: Operator | Variation,
    batch_size: int,
    start: Start = ANYWHERE,
    alter: Sequence[Callable | None] = (),
) -> list[State]:
    """One generation of several runs that differ in the rule, the children of all evaluated in one call.

    `tasks` are those of all runs, one after the other. Some runs may see descriptors `alter`ed.
    """
    bred = [children(s, s.generation, operator, _bounds(tasks), batch_size, start) for s in states]
    keys = [_keys(s.key, EVALUATION, s.generation + 1) for s in states]
    evaluation = _evaluate(tasks, jnp.concatenate(keys), jnp.concatenate([one.x for one in bred]))
    num = len(keys[0])
    found = []
    for i, (state, rule) in enumerate(zip(states, rules, strict=True)):
        part = jax.tree.map(lambda leaf, i=i: leaf[i * num : (i + 1) * num], evaluation)
        if alter and (change := alter[i]) is not None:
            part = change(keys[i], part)
        found.append(absorb(state, state.generation, rule, bred[i].x, part, traits=bred[i].traits))
    return found


def evolve(
    step: Callable[[S], S],
    state: S,
    steps: Int[Array, " R"],
    look: Callable[[S], Any] = lambda state: (),
    num_steps: Int[Array, ""] | None = None,
) -> tuple[S, Any]:
    """The one loop: `steps[0]` generations, a look, `steps[1]` generations, a look, and so on.

    Returns the last state and what was seen, stacked. Of the steps, all or only the first `num_steps` (traced) are
    made; what stands for looks that were not taken is zero.
    """
    seen = jax.tree.map(lambda leaf: jnp.zeros((len(steps), *leaf.shape), leaf.dtype), jax.eval_shape(look, state))

    def advance(i, carry):
        state, seen = carry
        state = jax.lax.fori_loop(0, steps[i], lambda _, state: step(state), state)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), seen, look(state))

    return jax.lax.fori_loop(0, len(steps) if num_steps is None else num_steps, advance, (state, seen))


def measure(state: State, qd_offset=None) -> dict[str, Float[Array, " K"]]:
    """The measures of a history row, for every task."""
    row = jax.vmap(metrics.measure)(state.population.fitness, state.population.descriptor)
    row["best_fitness"] = state.best.fitness[:, 0]
    row["num_nan"] = state.faults.num_nan.astype(row["novelty"].dtype)
    if state.archive is not None:
        elites = state.archive.elites.fitness
        row["archive_coverage"] = jax.vmap(passive.coverage)(elites)
        if qd_offset is not None:
            row["archive_qd_score"] = jax.vmap(passive.offset_qd_score, in_axes=(0, None))(elites, qd_offset)
    return row


def absorb_and_measure(is_row: Bool[Array, ""], qd_offset, *newcomers) -> tuple[State, dict[str, Float[Array, " K"]]]:
    """`absorb`, and what a history row says of the outcome; zeros unless `is_row`. For a host: one call, not two."""
    state = absorb(*newcomers)
    row = jax.eval_shape(measure, state, qd_offset)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), row)
    return state, jax.lax.cond(is_row, lambda: measure(state, qd_offset), lambda: zeros)


jit_children = jax.jit(children, static_argnames=("batch_size",))
jit_absorb = jax.jit(absorb)
jit_absorb_and_measure = jax.jit(absorb_and_measure)
jit_measure = jax.jit(measure)
jit_start_points = jax.jit(start_points, static_argnames=("num", "dim"))
