"""The meta-optimiser: evosax's strategies behind `init`, `ask`, `tell`.

Conventions:

- fitness is maximised, as everywhere in the package (evosax minimises); NaN counts as the worst;
- a strategy is plain configuration, its `State` a dictionary of float32 and int32 arrays by name: saved as it is, and
  unlike evosax's own structures never mistaken by `jit` for another of equal fields (see `lqd.types.pytree`);
- no array of the state has the size of the meta-population, so a state can continue under a strategy with more members;
- everything is a pure function of the key, and may be called under `jit`, `vmap` and `shard_map`.

Deliberately not here: where members are evaluated, and the best member seen. A member's fitness is relative to the
tasks of its meta-generation, so the best of two meta-generations cannot be told; the trainer validates the mean.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd.checks import installed, real, whole
from lqd.errors import InvalidInput, unknown

NAMES = ("sep-cma-es", "sep-cma-es-stock", "snes", "open-es")
State = dict[str, jax.Array]
# Of evosax's state: what only looks back (it begins as NaN), and what follows from the rest or from the configuration.
LEFT_OUT = frozenset({"best_solution", "best_fitness", "D", "lr_std"})


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How the meta-population moves; `learning_rate` is that of open-es's Adam, the others have none."""

    name: str
    num_members: int
    num_params: int
    sigma: float
    learning_rate: float

    def __post_init__(self):
        if self.name not in NAMES:
            raise unknown("strategy", self.name, NAMES)
        members = whole("meta_population_size (num_members)", self.num_members, 2)
        whole("num_params", self.num_params, 1)
        real("sigma", self.sigma, positive=True)
        real("learning_rate", self.learning_rate, positive=True)
        if self.name == "open-es" and members % 2:
            raise InvalidInput(
                f"meta_population_size (num_members) must be even for 'open-es', whose members come in pairs around "
                f"the mean, got {members}; use {members + 1}."
            )
        installed("evosax.algorithms", "train", "a strategy")

    def init(self, mean: Float[Array | np.ndarray, " n"]) -> State:
        """A search that begins at this mean, with the step size `sigma`."""
        mean = jnp.asarray(mean, jnp.float32)
        _check_shapes(mean=(mean, (self.num_params,)))
        start = {name: jnp.asarray(value) for name, value in _build(self).start.items() if name not in LEFT_OUT}
        return start | {"mean": mean}

    def ask(self, key: Key[Array, ""], state: State) -> Float[Array, "M n"]:
        """The members of this meta-generation."""
        built = _build(self)
        with jax.numpy_dtype_promotion("standard"):
            members, _ = built.algorithm.ask(key, built.unpack(state), built.params)
        return members.astype(jnp.float32)

    def tell(
        self, key: Key[Array, ""], state: State, members: Float[Array, "M n"], fitness: Float[Array, " M"]
    ) -> State:
        """The state after the members that `ask` gave for `state` reached this fitness."""
        members, fitness = jnp.asarray(members, jnp.float32), jnp.asarray(fitness, jnp.float32)
        _check_shapes(
            members=(members, (self.num_members, self.num_params)),
            fitness=(fitness, (self.num_members,)),
        )
        built = _build(self)
        with jax.numpy_dtype_promotion("standard"):
            # evosax's ask also refreshes D from C, which its tell expects; the members drawn again are dropped, and
            # compiled away under jit.
            _, inner = built.algorithm.ask(key, built.unpack(state), built.params)
            inner, _ = built.algorithm.tell(key, members, -fitness, inner, built.params)
        return {name: value for name, value in _by_name(inner).items() if name not in LEFT_OUT}

    def mean(self, state: State) -> Float[Array, " n"]:
        """The centre of the search: what is validated and kept."""
        return state["mean"]

    def sigma_of(self, state: State) -> Float[Array, ""]:
        """The step size now, as one number for logs; of several, one per parameter, their (root) mean (square)."""
        if self.name == "snes":
            return state["std"].mean()
        if self.name == "open-es":
            return state["std"]
        return state["std"] * jnp.sqrt(state["C"].mean())


@dataclasses.dataclass(frozen=True)
class _Built:
    """An evosax algorithm with its settings; `start` is its first state, whole, by name."""

    algorithm: Any
    params: Any
    start: Mapping[str, np.ndarray]
    structure: Any

    def unpack(self, state: State) -> Any:
        """evosax's state from ours; what we leave out is as it was initially."""
        expected = {name: value.shape for name, value in self.start.items() if name not in LEFT_OUT}
        received = {name: jnp.shape(value) for name, value in state.items()}
        if received != expected:
            raise InvalidInput(f"the state belongs to another strategy: expected shapes {expected}, got {received}.")
        return jax.tree.unflatten(self.structure, [state.get(name, value) for name, value in self.start.items()])


@functools.lru_cache(maxsize=64)
def _build(strategy: Strategy) -> _Built:
    """Once per strategy: evosax compiles anew for each of its objects.

    May be called first while tracing, hence evaluated at once and kept as NumPy: a traced value would leak from the
    cache. The mean and the best solution of evosax's first state are NaN; both are replaced.
    """
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"), jax.debug_nans(False):
        algorithm, params = _algorithm(strategy)
        zeros = np.zeros(strategy.num_params, np.float32)
        state = algorithm.init(jax.random.key(0), zeros, params).replace(best_solution=zeros)
        start = {name: np.asarray(value) for name, value in _by_name(state).items()}
        params = jax.tree.map(lambda value: np.asarray(value, np.float32), params)
    return _Built(algorithm, params, start, jax.tree.structure(state))


def _algorithm(strategy: Strategy) -> tuple[Any, Any]:
    """evosax's object and its settings."""
    algorithms = installed("evosax.algorithms", "train", "a strategy")
    solution = np.zeros(strategy.num_params, np.float32)
    if strategy.name == "open-es":
        optax = installed("optax", "train", "a strategy")
        algorithm = algorithms.Open_ES(
            strategy.num_members,
            solution,
            optimizer=optax.adam(strategy.learning_rate),
            std_schedule=optax.constant_schedule(strategy.sigma),
            metrics_fn=_no_metrics,
        )
        return algorithm, algorithm.default_params
    kind = algorithms.SNES if strategy.name == "snes" else algorithms.Sep_CMA_ES
    algorithm = kind(strategy.num_members, solution, metrics_fn=_no_metrics)
    params = algorithm.default_params.replace(std_init=jnp.float32(strategy.sigma))
    return algorithm, _separable_rates(params, strategy.num_params) if strategy.name == "sep-cma-es" else params


def _separable_rates(params: Any, num_params: int) -> Any:
    """The learning rates of a diagonal covariance, (n + 2) / 3 times those of a full one (Ros & Hansen 2008).

    evosax 0.3.2 keeps the rates of the full matrix: with thousands of parameters its diagonal hardly ever moves.
    Together they stay a hair below 1: the weights sum to 1 but for rounding, and a variance must not turn negative.
    """
    factor, most = (num_params + 2) / 3, 1 - 1e-5
    c_1 = jnp.minimum(factor * params.c_1, most)
    return params.replace(c_1=c_1, c_mu=jnp.minimum(factor * params.c_mu, most - c_1))


def _no_metrics(key, population, fitness, state, params) -> dict[str, Any]:
    """No metrics: evosax's own are not used, and some are NaN."""
    return {}


def _by_name(tree: Any) -> dict[str, jax.Array]:
    """Leaves by path, in float32 or int32 also where JAX is in 64-bit mode, and not weakly typed."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): _array(leaf) for path, leaf in leaves}


def _array(leaf: Any) -> jax.Array:
    is_whole = jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
    return jnp.asarray(leaf, jnp.int32 if is_whole else jnp.float32)


def _check_shapes(**named: tuple[jax.Array, tuple[int, ...]]) -> None:
    for name, (array, shape) in named.items():
        if array.shape != shape:
            raise InvalidInput(f"{name} must have shape {shape}, got {array.shape}.")
