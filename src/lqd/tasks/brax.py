"""Robots that walk: policies of four simulated robots, with descriptors of how they move. Needs the extra `brax`.

A genotype is the weights of a policy: one hidden layer of 16 tanh units, linear outputs, clipped to the range of the
actuators. Fitness is the return of an episode: the environment's own reward (forward velocity, plus a bonus for staying
upright and minus the cost of control, as each environment has them). A descriptor is a mean over the steps that count:
the share of time that a foot touches the ground, or a velocity. Nothing after the first `done` counts.

The start position is drawn from the evaluation's key: fitness and descriptor that a rule sees are those of one random
reset, and the best of many is partly luck. `noiseless` is one episode, always from the same start (that of key 0): the
final scores of `lqd run` are made of it. Benches measure what they report on fresh resets, see `lqd.bench.again`.
"""

import contextlib
import functools
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.errors import InvalidInput, unknown
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

HIDDEN = 16
BACKENDS = ("spring", "generalized", "positional", "mjx")
VELOCITY, CONTACT = (-5.0, 5.0), (0.0, 1.0)


class Robot(NamedTuple):
    """An environment of brax, its name in figures, and what describes a policy: links of feet, names of velocities."""

    environment: str
    title: str
    feet: tuple[int, ...]
    velocities: tuple[str, ...]
    summary: str


ROBOTS = {
    "hopper": Robot(
        "hopper", "Hopper", (3,), ("x_velocity",), "one leg; descriptor: foot contact and forward velocity"
    ),
    "walker2d": Robot("walker2d", "Walker2d", (3, 6), (), "two legs; descriptor: contact of the feet"),
    "halfcheetah": Robot(
        "halfcheetah", "Half-Cheetah", (3, 6), (), "two legs, never falls; descriptor: contact of the feet"
    ),
    "ant-velocity": Robot(
        "ant", "Ant (velocity)", (), ("x_velocity", "y_velocity"), "four legs; descriptor: velocity in the plane"
    ),
    "ant-feet": Robot("ant", "Ant (feet)", (2, 8), (), "four legs; descriptor: contact of the first and the last foot"),
}


@contextlib.contextmanager
def leniently():
    """For everything that brax traces: it mixes dtypes, and uses what its dependencies have deprecated."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        yield


@functools.cache
def environment(name: str, backend: str) -> Any:
    """The simulator, with contacts in its state."""
    # What it would rather have installed, brax says in every way there is.
    with leniently(), contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()):
        try:
            from brax import envs
        except ImportError as error:
            raise InvalidInput(f"robots need brax ({error}): pip install 'lqd[brax]'.") from error
        return envs.get_environment(name, backend=backend, debug=True)


@functools.cache
def _sizes(name: str, backend: str) -> tuple[int, int]:
    """Of an observation and of an action."""
    env = environment(name, backend)
    with leniently():
        state = jax.eval_shape(env.reset, jax.eval_shape(lambda: jax.random.key(0)))
    return state.obs.shape[-1], env.sys.act_size()


@pytree
class RobotTask:
    """One robot; see `ROBOTS`."""

    robot: str = static()
    episode_length: int = static(default=1000)
    backend: str = static(default="spring")
    chunk_size: int = static(default=16_384)

    def __post_init__(self):
        if self.robot not in ROBOTS:
            raise unknown("robot", self.robot, ROBOTS)
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        for name in ("episode_length", "chunk_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}.")
        environment(ROBOTS[self.robot].environment, self.backend)  # says at once what is missing

    @property
    def simulator(self) -> Any:
        """The environment of brax."""
        return environment(ROBOTS[self.robot].environment, self.backend)

    @property
    def name(self) -> str:
        return f"brax/{self.robot}"

    @property
    def dim(self) -> int:
        return self.num_weights(HIDDEN)

    def num_weights(self, num_hidden: int) -> int:
        """The number of weights of a policy with this many hidden units."""
        size, num_actions = _sizes(ROBOTS[self.robot].environment, self.backend)
        return (size + 1) * num_hidden + (num_hidden + 1) * num_actions

    @property
    def num_actions(self) -> int:
        return _sizes(ROBOTS[self.robot].environment, self.backend)[1]

    @property
    def descriptor_dim(self) -> int:
        return len(self._ranges)

    @property
    def bounds(self) -> None:
        return None

    @property
    def init_sigma(self) -> float:
        """Scale of the first weights: with more, the hidden units saturate."""
        return 0.25

    @property
    def _ranges(self) -> list[tuple[float, float]]:
        robot = ROBOTS[self.robot]
        return [CONTACT] * len(robot.feet) + [VELOCITY] * len(robot.velocities)

    @property
    def descriptor_names(self) -> list[str]:
        robot = ROBOTS[self.robot]
        feet = [f"contact of foot {i + 1}" for i in range(len(robot.feet))]
        return feet + [name.replace("_", " ") for name in robot.velocities]

    @property
    def descriptor_bounds(self) -> Box:
        low, high = zip(*self._ranges, strict=True)
        return jnp.asarray(low), jnp.asarray(high)

    @property
    def f_opt(self) -> None:
        return None

    def evaluate(self, key: Key[Array, ""], x: Float[Array, "B n"]) -> Evaluation:
        return Evaluation(*self._in_chunks(jax.random.split(key, x.shape[0]), x))

    def _in_chunks(self, keys: Key[Array, " B"], x: Float[Array, "B n"]):
        """Return and descriptor. A simulator's state is a few thousand numbers for each policy, so only a chunk of
        them walks at once, also where this is mapped over seeds."""
        chunked = jax.custom_batching.custom_vmap(self._chunked)

        @chunked.def_vmap
        def _(num, is_batched, keys, x):
            keys, x = (
                leaf if batched else jnp.broadcast_to(leaf, (num, *leaf.shape))
                for leaf, batched in zip((keys, x), is_batched, strict=True)
            )
            found = self._in_chunks(keys.reshape(-1), x.reshape(-1, x.shape[-1]))
            return jax.tree.map(lambda leaf: leaf.reshape(num, -1, *leaf.shape[1:]), found), (True, True)

        return chunked(keys, x)

    def _chunked(self, keys: Key[Array, " B"], x: Float[Array, "B n"]):
        num = x.shape[0]
        if num <= self.chunk_size:
            return self.measured(keys, x)[:2]
        padding = -num % self.chunk_size
        keys, x = (jnp.concatenate([given, given[:padding]]) for given in (keys, x))
        chunks = (keys.reshape(-1, self.chunk_size), x.reshape(-1, self.chunk_size, x.shape[1]))
        found = jax.lax.map(lambda given: self.measured(*given)[:2], chunks)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num], found)

    def noiseless(self, x: Float[Array, "B n"]) -> Float[Array, " B"]:
        """The return of one episode, from the same start for all policies: free of noise, but not the mean over
        starts."""
        return self._in_chunks(jnp.broadcast_to(jax.random.key(0), x.shape[:1]), x)[0]

    def measured(self, keys: Key[Array, " B"], x: Float[Array, "B n"]):
        """Return, descriptor and number of steps of each policy's episode, all in one chunk."""
        with leniently():
            return rollout(self.simulator, self.describe, keys, x, self.episode_length)

    def describe(self, state) -> Float[Array, " D"]:
        """The descriptor's values at one moment."""
        robot = ROBOTS[self.robot]
        touching = contacts(state.pipeline_state.contact, robot.feet) if robot.feet else ()
        return jnp.stack([*touching, *(state.metrics[name] for name in robot.velocities)])


def contacts(contact, links: tuple[int, ...]) -> list[Float[Array, ""]]:
    """1 for each of the links that touches something now, else 0."""
    touching = contact.dist <= 0
    first, second = contact.link_idx
    return [jnp.any(touching & ((first == link) | (second == link))).astype(jnp.float32) for link in links]


def act(x: Float[Array, " n"], observation: Float[Array, " o"], num_actions: int) -> Float[Array, " a"]:
    """The policy; it has as many hidden units as its weights are enough for."""
    size = observation.shape[0]
    num_hidden = (x.shape[0] - num_actions) // (size + 1 + num_actions)
    first, bias, second, last = jnp.split(x, [size * num_hidden, (size + 1) * num_hidden, x.shape[0] - num_actions])
    hidden = jnp.tanh(observation @ first.reshape(size, num_hidden) + bias)
    return jnp.clip(hidden @ second.reshape(num_hidden, num_actions) + last, -1, 1)


def rollout(env, describe: Callable, keys: Key[Array, " B"], x: Float[Array, "B n"], episode_length: int):
    """Return, mean descriptor and length of each policy's episode, up to and with its first `done`.

    Ends as soon as all are done.
    """
    step = jax.vmap(lambda state, x: env.step(state, act(x, state.obs, env.action_size)))

    def is_going_on(carry):
        number, _, alive, *_ = carry
        return (number < episode_length) & jnp.any(alive)

    def advance(carry):
        number, state, alive, total, descriptor, num_steps = carry
        state = step(state, x)
        total = total + jnp.where(alive, state.reward, 0.0)
        descriptor = descriptor + jnp.where(alive[:, None], jax.vmap(describe)(state), 0.0)
        return number + 1, state, alive & (state.done == 0), total, descriptor, num_steps + alive.astype(jnp.float32)

    state = jax.vmap(env.reset)(keys)
    shape = jax.eval_shape(jax.vmap(describe), state)
    zeros = jnp.zeros(x.shape[0])
    begin = (jnp.int32(0), state, jnp.ones(x.shape[0], bool), zeros, jnp.zeros(shape.shape), zeros)
    *_, total, descriptor, num_steps = jax.lax.while_loop(is_going_on, advance, begin)
    return total, descriptor / jnp.maximum(num_steps, 1.0)[:, None], num_steps
