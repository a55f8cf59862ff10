"""One meta-generation: ask, sample tasks, run every member on them, score, tell.

Every member meets the same tasks with the same random numbers, which are made once: only the rule is mapped over.

Devices share the members. Each device holds the whole (small) state of the meta-optimiser, draws all members and all
tasks from the same keys, and runs its own part of the members, a chunk of fixed size at a time; then the scores are
gathered on every device, and each one tells its own copy of the meta-optimiser. Nothing but scores travels.

All arithmetic is in programs of one device, which the host starts on every device without waiting for any: the same
programs whatever the number of devices, so the same bits. One program partitioned over all devices would be shorter,
but XLA optimises a program of one partition differently from one of several (seen on CPU: other roundings).
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from lqd.evolution import loop
from lqd.meta import objective
from lqd.meta.config import Config, Stage, check_division
from lqd.meta.objective import Measures
from lqd.meta.strategy import State, Strategy
from lqd.rules.learned.network import Architecture, init_params
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import Rule, ready
from lqd.tasks.anchors import random_search
from lqd.tasks.bbob.instances import LandscapeBatch
from lqd.types import pytree

AXIS = "members"
STARTING, IMITATING, EVOLVING = range(3)  # what a run's seed is folded with: one stream of keys for each use
Report = dict[str, Float[Array, ""]]


@functools.lru_cache(maxsize=8)
def _unravel(architecture: Architecture) -> tuple[int, Callable]:
    with jax.ensure_compile_time_eval():
        flat, unravel = ravel_pytree(init_params(jax.random.key(0), architecture))
    return flat.size, unravel


def num_params(architecture: Architecture) -> int:
    return _unravel(architecture)[0]


def rule_from(flat: Float[Array, " n"], architecture: Architecture) -> Learned:
    """The rule whose weights are one vector."""
    return Learned(_unravel(architecture)[1](flat), architecture)


def flat_from(rule: Learned) -> Float[Array, " n"]:
    return ravel_pytree(rule.params)[0]


def strategy_of(config: Config, stage: Stage) -> Strategy:
    return Strategy(
        config.strategy,
        stage.meta_population_size,
        num_params(config.architecture),
        config.sigma,
        config.learning_rate,
    )


def run_rule(
    rule: Rule,
    keys: Key[Array, " K"],
    tasks,
    config: Config,
    num_generations: Int[Array, ""],
    f_rand: Float[Array, " K"] | None,
) -> Measures:
    """One rule on every task, and what is measured of its final populations, on noiseless fitness."""
    fitness, descriptor = final_populations(rule, keys, tasks, config, num_generations)
    own = config.objective.own
    measures = functools.partial(objective.measures, own=own if callable(own) else None)
    if f_rand is None:
        return jax.vmap(measures)(fitness, descriptor)
    f_opt = tasks.f_opt.astype(fitness.dtype)
    return jax.vmap(measures)(fitness, descriptor, f_rand.astype(fitness.dtype), f_opt)


def run_scaled(rule: Rule, keys, tasks: LandscapeBatch, config: Config, num_generations, f_rand) -> Measures:
    """The same with descriptors scaled to [-1, 1]; but novelties and QD scores are in the tasks' own units."""
    measured = run_rule(rule, keys, tasks.with_unit_descriptors(), config, num_generations, f_rand)
    return measured | {
        name: measured[name] * tasks.descriptor_half_width for name in ("novelty", "qd") if name in measured
    }


def final_populations(rule: Rule, keys: Key[Array, " K"], tasks, config: Config, num_generations: Int[Array, ""]):
    """Noiseless fitness (K, N) and descriptors (K, N, D) that one rule ends with on every task."""
    rule, operator = ready(rule), config.operator
    state = loop.begin(keys, tasks, rule, config.population_size)
    state, _ = loop.evolve(
        lambda state: loop.step(state, tasks, rule, operator, config.batch_size), state, num_generations[None]
    )
    population = state.population
    return jnp.where(population.filled, tasks.noiseless(population.x), -jnp.inf), population.descriptor


def anchors(key: Key[Array, ""], tasks: LandscapeBatch, config: Config, num_generations) -> Float[Array, " K"]:
    """What random search reaches on each task with the evaluations that a run has."""
    return random_search(key, tasks, config.population_size + num_generations * config.batch_size).f_rand


@pytree
class Prepared:
    """What all members of a meta-generation share, and the members."""

    members: Float[Array, "M n"]
    tasks: LandscapeBatch
    keys: Key[Array, " K"]
    f_rand: Float[Array, " K"] | None


def _keys_of(seed: Int[Array, ""], meta_generation: Int[Array, ""]) -> Key[Array, " 5"]:
    """Keys of one meta-generation: ask, tasks, runs, anchors, tell."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVOLVING), meta_generation)
    return jax.random.split(key, 5)


@functools.partial(jax.jit, static_argnums=(0, 1))
def prepare(config: Config, stage: Stage, state: State, seed, meta_generation, num_generations) -> Prepared:
    key_ask, key_tasks, key_runs, key_anchors, _ = _keys_of(seed, meta_generation)
    members = strategy_of(config, stage).ask(key_ask, state)
    tasks = config.distribution.sample(key_tasks, stage.num_tasks)
    f_rand = anchors(key_anchors, tasks, config, num_generations) if config.objective.needs_anchors else None
    return Prepared(members, tasks, jax.random.split(key_runs, stage.num_tasks), f_rand)


@functools.partial(jax.jit, static_argnums=(0, 1))
def run_chunk(config: Config, chunk: int, prepared: Prepared, first, num_generations) -> Measures:
    """Members `first` and after, as many as a chunk holds, on every task."""
    members = jax.lax.dynamic_slice_in_dim(prepared.members, first, chunk)
    run_on = run_rule if config.objective.own is None else run_scaled

    def run(flat):
        rule = rule_from(flat, config.architecture)
        return run_on(rule, prepared.keys, prepared.tasks, config, num_generations, prepared.f_rand)

    return jax.vmap(run)(members)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def finish(config: Config, stage: Stage, state: State, members, measured: Measures, seed, meta_generation):
    strategy = strategy_of(config, stage)
    fitness = config.objective.meta_fitness(measured)
    state = strategy.tell(_keys_of(seed, meta_generation)[4], state, members, fitness)
    return state, _report(strategy, state, fitness, measured)


def _report(strategy: Strategy, state: State, fitness, measured: Measures) -> Report:
    mean = strategy.mean(state)
    valid = objective.is_valid(measured)
    return {
        "sigma": strategy.sigma_of(state),
        "mean_norm": jnp.linalg.norm(mean),
        "meta_fitness_best": jnp.max(fitness),
        "meta_fitness_spread": jnp.std(fitness),
        "regret": jnp.median(jnp.where(valid, -measured["fitness"], jnp.inf)),
        "novelty": jnp.median(jnp.where(valid, measured["novelty"], 0.0)),
        "num_failed": jnp.sum((~valid).astype(jnp.float32)),
    }


class Generation:
    """The compiled meta-generation of one stage on all devices: `place` a state, then call as often as needed.

    A placed state is a list with one copy per device of this process. A call takes it over (its buffers are reused),
    starts everything and returns at once; the results can be waited for, or handed to the next call.
    """

    def __init__(self, config: Config, stage: Stage):
        self.devices = jax.local_devices()
        self._mesh = Mesh(np.asarray(jax.devices()), (AXIS,))
        self._seed = np.uint32(config.seed)
        self._num_generations = np.int32(stage.num_generations)
        self._chunk = min(config.chunk_size, stage.meta_population_size)
        self._num_chunks = check_division(stage.meta_population_size, config.chunk_size, jax.device_count())
        self._prepare = functools.partial(prepare, config, stage)
        self._run_chunk = functools.partial(run_chunk, config, self._chunk)
        self._finish = functools.partial(finish, config, stage)
        self._gather = jax.jit(lambda measured: measured, out_shardings=NamedSharding(self._mesh, PartitionSpec()))

    def place(self, state: Mapping[str, np.ndarray]) -> list[State]:
        return [jax.device_put(dict(state), device) for device in self.devices]

    def __call__(self, states: list[State], meta_generation: int) -> tuple[list[State], Report]:
        number = np.int32(meta_generation)
        prepared = [self._prepare(state, self._seed, number, self._num_generations) for state in states]
        measured = self._whole([self._run(part, device) for part, device in zip(prepared, self.devices, strict=True)])
        finished = [
            self._finish(state, part.members, scores, self._seed, number)
            for state, part, scores in zip(states, prepared, measured, strict=True)
        ]
        return [state for state, _ in finished], finished[0][1]

    def _run(self, prepared: Prepared, device: jax.Device) -> Measures:
        """The chunks of one device, one after the other."""
        place = self._mesh.devices.tolist().index(device) * self._num_chunks
        parts = [
            self._run_chunk(prepared, np.int32((place + i) * self._chunk), self._num_generations)
            for i in range(self._num_chunks)
        ]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def _whole(self, parts: list[Measures]) -> list[Measures]:
        """Every member's scores on every device of this process."""
        if self._mesh.size == 1:
            return parts
        sharding = NamedSharding(self._mesh, PartitionSpec(AXIS))

        def join(*leaves):
            shape = (leaves[0].shape[0] * self._mesh.size, *leaves[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, sharding, list(leaves))

        gathered = self._gather(jax.tree.map(join, *parts))
        by_device = {
            name: {shard.device: shard.data for shard in leaf.addressable_shards} for name, leaf in gathered.items()
        }
        return [{name: shards[device] for name, shards in by_device.items()} for device in self.devices]
