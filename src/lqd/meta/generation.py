"""One meta-generation: ask, sample tasks, run every member on them, score, tell.

Every member meets the same tasks with the same random numbers, which are made once: only the rule is mapped over.

Devices share the members. Each device holds the whole (small) state of the meta-optimiser, draws all members and all
tasks from the same keys, and runs its own part of the members, a chunk of fixed size at a time; then the scores are
gathered on every device, and each one tells its own copy of the meta-optimiser. Only scores travel.

All arithmetic is in programs of one device, which the host starts on every device without waiting for any: the same
programs whatever the number of devices, so the same bits. One program partitioned over all devices would be shorter,
but XLA optimises a program of one partition differently from one of several (seen on CPU: other roundings).
"""

import concurrent.futures
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from lqd.meta import mixture, objective
from lqd.meta.config import Config, Stage, check_division
from lqd.meta.family import Family, TrainingTasks
from lqd.meta.inner_run import anchors, run_trained
from lqd.meta.objective import Measures
from lqd.meta.strategy import State, Strategy
from lqd.rules.learned.network import Architecture, init_params
from lqd.rules.learned.rule import Learned
from lqd.types import pytree

AXIS = "members"
STARTING, IMITATING, EVOLVING = range(3)  # what a run's seed is folded with: one stream of keys for each use
FURTHER = 0xFA000000  # folded, plus the number of a family after the first, into the keys of the first
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


@pytree
class Prepared:
    """What all members of a meta-generation share, and the members."""

    members: Float[Array, "M n"]
    tasks: TrainingTasks
    keys: Key[Array, " K"]
    f_rand: Float[Array, " K"] | None
    f_worst: Float[Array, " K"] | None


def _keys_of(seed: Int[Array, ""], meta_generation: Int[Array, ""]) -> Key[Array, " 5"]:
    """Keys of one meta-generation: ask, tasks, runs, anchors, tell."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVOLVING), meta_generation)
    return jax.random.split(key, 5)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def prepare(
    config: Config, stage: Stage, family: Family, state: State, seed, meta_generation, num_evaluations
) -> Prepared:
    """The members, and the tasks of the run's first family."""
    members = strategy_of(config, stage).ask(_keys_of(seed, meta_generation)[0], state)
    return _with_tasks(config, stage, 0, family, members, seed, meta_generation, num_evaluations)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def prepare_further(config, stage, number: int, family, members, seed, meta_generation, num_evaluations) -> Prepared:
    """The same members, and the tasks of a further family."""
    return _with_tasks(config, stage, number, family, members, seed, meta_generation, num_evaluations)


def _with_tasks(config, stage, number, family, members, seed, meta_generation, num_evaluations) -> Prepared:
    _, key_tasks, key_runs, key_anchors, _ = keys_of_part(_keys_of(seed, meta_generation), number)
    num_tasks = config.divided("num_tasks", stage.num_tasks)[number]
    tasks = family.sample(key_tasks, num_tasks)
    found = anchors(key_anchors, tasks, num_evaluations) if config.objective.needs_anchors else None
    f_rand = None if found is None or not config.objective.needs_f_rand else found.f_rand
    f_worst = None if found is None or not config.objective.needs_f_worst else found.f_worst
    return Prepared(members, tasks, jax.random.split(key_runs, num_tasks), f_rand, f_worst)


def keys_of_part(keys: Key[Array, " N"], number: int) -> Key[Array, " N"]:
    """The keys of a part; those of the first family are the same as in a run with a single one."""
    return keys if number == 0 else jax.vmap(lambda key: jax.random.fold_in(key, FURTHER + number))(keys)


@functools.partial(jax.jit, static_argnums=(0, 1))
def run_chunk(config: Config, chunk: int, prepared: Prepared, first, num_generations) -> Measures:
    """Runs as many members as a chunk holds, from `first` on, on every task."""
    members = jax.lax.dynamic_slice_in_dim(prepared.members, first, chunk)

    def run(flat):
        rule = rule_from(flat, config.architecture)
        return run_trained(
            rule, prepared.keys, prepared.tasks, config, num_generations, prepared.f_rand, prepared.f_worst
        )  # fmt: skip

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


def compile_together(program, calls: Sequence[tuple]) -> None:
    """Compiles what these calls need side by side, where there are several: one after the other takes minutes.

    Traced here, since settings of JAX such as `jax.default_device` belong to a thread; a call finds what was compiled.
    """
    if len(calls) > 1:
        lowered = [program.lower(*call) for call in calls]
        with concurrent.futures.ThreadPoolExecutor(len(lowered)) as pool:
            list(pool.map(lambda one: one.compile(), lowered))


class Generation:
    """The compiled meta-generation of one stage on all devices: `place` a state, then call as often as needed.

    A placed state is a list with one copy per device of this process. A call takes it over (its buffers are reused),
    starts everything and returns at once; the results can be waited for, or handed to the next call.

    The runs of each family in each shape are one program; everything about the members is one for all of them.
    """

    def __init__(self, config: Config, stage: Stage):
        self.config, self.stage = config, stage
        self.devices = jax.local_devices()
        self._mesh = Mesh(np.asarray(jax.devices()), (AXIS,))
        self._seed = np.uint32(config.seed)
        self._chunk = min(config.chunk_size, stage.meta_population_size)
        self._num_chunks = check_division(stage.meta_population_size, config.chunk_size, jax.device_count())
        self._compiled: set[mixture.Shape] = set()
        self._gather = jax.jit(lambda measured: measured, out_shardings=NamedSharding(self._mesh, PartitionSpec()))

    def place(self, state: Mapping[str, np.ndarray]) -> list[State]:
        return [jax.device_put(dict(state), device) for device in self.devices]

    def __call__(self, states: list[State], meta_generation: int) -> tuple[list[State], Report]:
        shape, horizon = mixture.drawn(
            self.stage.shapes, self.stage.num_generations, self.config.seed, meta_generation
        )  # fmt: skip
        config, num_generations = self.config.at(shape), np.int32(horizon)
        families = [mixture.reshaped(family, shape) for family in self.config.families]
        number = np.int32(meta_generation)
        budget = np.int32(config.population_size + horizon * config.batch_size)
        prepared = [self._prepare(families, state, number, budget) for state in states]
        if shape not in self._compiled:
            parts = [part for parts in prepared for part in parts]
            compile_together(run_chunk, [(config, self._chunk, part, np.int32(0), num_generations) for part in parts])
            self._compiled.add(shape)
        measured = self._whole(
            [
                self._run(config, parts, device, num_generations)
                for parts, device in zip(prepared, self.devices, strict=True)
            ]
        )
        finished = [
            finish(self.config, self.stage, state, parts[0].members, scores, self._seed, number)
            for state, parts, scores in zip(states, prepared, measured, strict=True)
        ]
        return [state for state, _ in finished], finished[0][1]

    def _prepare(self, families: list[Family], state: State, number, budget) -> list[Prepared]:
        """The members with the tasks of each family."""
        about = self._seed, number, budget
        first = prepare(self.config, self.stage, families[0], state, *about)
        further = [
            prepare_further(self.config, self.stage, i, family, first.members, *about)
            for i, family in enumerate(families[1:], 1)
        ]
        return [first, *further]

    def _run(self, config: Config, parts: list[Prepared], device: jax.Device, num_generations) -> Measures:
        """The chunks of one device, one after the other; tasks of several families side by side."""
        place = self._mesh.devices.tolist().index(device) * self._num_chunks
        found = []
        for part in parts:
            chunks = [
                run_chunk(config, self._chunk, part, np.int32((place + i) * self._chunk), num_generations)
                for i in range(self._num_chunks)
            ]
            found.append(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *chunks))
        if len(found) == 1:
            return found[0]
        names = [name for name in found[0] if all(name in part for part in found)]
        return {name: jnp.concatenate([part[name] for part in found], axis=1) for name in names}

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
