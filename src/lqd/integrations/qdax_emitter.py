"""The default variation as an emitter of QDax, for any of its repertoires: no step size has to be known.

    algorithm = MAPElites(scoring, LQDEmitter(bounds=(-5, 5)), metrics)

Steps follow the spread of the elites; of the children that are bred, only the most promising are emitted, by a model of
recent evaluations (`evolution/variation.py`). Genotypes are arrays, or trees of arrays, of real numbers;
they vary in single precision and keep their dtypes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from qdax.core.emitters.emitter import Emitter, EmitterState

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.evolution.memory import Memory
from lqd.evolution.sums import deviation, mean_of
from lqd.evolution.variation import Spread, Start
from lqd.integrations import emitting


class LQDEmitterState(EmitterState):
    """Recent evaluations, and the units of genotypes and descriptors."""

    memory: Memory
    start: Start  # the middle and spread of the first genotypes
    descriptor_bounds: Any  # both ends, or None: by spread


class LQDEmitter(Emitter):
    """Children of the repertoire's individuals, with steps and a choice that need no tuning."""

    def __init__(self, *, bounds: Any = None, descriptor_bounds: Any = None, batch_size: int = emitting.BATCH_SIZE):
        """Creates an emitter; what it learns is in its state.

        Args:
            bounds: `(low, high)` of genotypes, numbers or one for each dimension (of a tree, in the order of
                `jax.tree.leaves`); what would leave them stays inside.
            descriptor_bounds: `(low, high)` of descriptors, the range that counts, and the unit. Default: that of the
                centroids, or of `LQDRepertoire`'s archive; if there are no cells, the spread.
            batch_size: How many genotypes to emit at once.
        """
        self._bounds = None if bounds is None else checks.box("bounds", bounds, None)
        self._descriptor_bounds = (
            None if descriptor_bounds is None else checks.box("descriptor_bounds", descriptor_bounds, None)
        )
        self._batch_size = checks.size("batch_size", batch_size)

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @property
    def use_all_data(self) -> bool:
        """Beside other emitters, it also learns from what they emit."""
        return True

    def init(self, key, repertoire, genotypes, fitnesses, descriptors, extra_scores=None) -> LQDEmitterState:
        """The state, with the first genotypes in its memory."""
        x = _flat(genotypes)
        self._box(x.shape[1])  # the error comes now
        if descriptors is None or jnp.ndim(descriptors) != 2:
            raise InvalidInput(
                f"descriptors must have shape (batch, D), got {shown(descriptors)}: LQDEmitter chooses by them, so it "
                "is for MAPElites and algorithms like it."
            )
        there = jnp.all(jnp.isfinite(x), axis=1)
        spread = deviation(x, there)
        state = LQDEmitterState(
            memory=emitting.no_memory(x.shape[1], jnp.shape(descriptors)[1]),
            start=Start(mean_of(x, there), jnp.where(spread > 0, spread, 1.0)),
            descriptor_bounds=self._descriptor_range(repertoire, jnp.shape(descriptors)[1]),
        )
        return self.state_update(state, repertoire, genotypes, fitnesses, descriptors, extra_scores)

    def emit(self, repertoire, emitter_state, key) -> tuple[Any, dict]:
        """A batch of children."""
        if emitter_state is None:
            raise InvalidInput("emitter_state must be what LQDEmitter.init returned, got None.")
        x = _flat(repertoire.genotypes)
        fitness = jnp.asarray(repertoire.fitnesses)
        if fitness.size != len(x):
            raise InvalidInput(
                f"repertoire must have one fitness for each genotype, got shape {fitness.shape} for {len(x)}: "
                "LQDEmitter supports one objective."
            )
        box = self._box(x.shape[1])
        key_parents, key_children = jax.random.split(key)
        filled = fitness.reshape(-1) > -jnp.inf
        # The largest of uniform numbers are a uniform sample; those of empty slots are below them all.
        drawn = jnp.where(filled, jax.random.uniform(key_parents, filled.shape, jnp.float32), -1.0)
        size = min(len(x), emitting.PARENTS)
        chosen = jax.lax.top_k(drawn, size)[1]
        num = jnp.minimum(jnp.sum(filled, dtype=jnp.int32), size)
        start = emitter_state.start if box is None else Start()
        found = emitting.children(
            key_children, Spread(emitter_state.descriptor_bounds), x[chosen], num, box, start, self._batch_size,
            emitter_state.memory,
        )  # fmt: skip
        return _like(repertoire.genotypes, found), {}

    def state_update(
        self, emitter_state, repertoire=None, genotypes=None, fitnesses=None, descriptors=None, extra_scores=None
    ) -> LQDEmitterState:
        """The state with this batch in its memory."""
        x = _flat(genotypes)
        fitness, descriptor = jnp.asarray(fitnesses), jnp.asarray(descriptors)
        if fitness.size != len(x):
            raise InvalidInput(f"fitnesses must have shape ({len(x)},) or ({len(x)}, 1), got {fitness.shape}.")
        dim = emitter_state.memory.descriptor.shape[1]
        if descriptor.shape != (len(x), dim):
            raise InvalidInput(f"descriptors must have shape ({len(x)}, {dim}), got {descriptor.shape}.")
        memory = emitting.insert(
            emitter_state.memory, x, fitness.reshape(-1).astype(jnp.float32), descriptor.astype(jnp.float32),
            jnp.int32(len(x)),
        )  # fmt: skip
        return emitter_state.replace(memory=memory)

    def _box(self, dim: int):
        return None if self._bounds is None else _ends("bounds", self._bounds, dim)

    def _descriptor_range(self, repertoire, dim: int):
        if self._descriptor_bounds is not None:
            return _ends("descriptor_bounds", self._descriptor_bounds, dim)
        cells = getattr(repertoire, "archive", repertoire)  # LQDRepertoire has its cells there, if any
        centroids = getattr(cells, "centroids", None)
        if centroids is None or len(centroids) < 2**dim:
            return None
        # Cells end half a cell beyond the outermost centroids.
        centroids = jnp.asarray(centroids).astype(jnp.float32)
        low, high = jnp.min(centroids, axis=0), jnp.max(centroids, axis=0)
        margin = (0.5 / (len(centroids) ** (1.0 / dim) - 1.0)) * (high - low)
        return low - margin, high + margin


def _ends(name: str, ends, dim: int):
    """Both ends of a box for so many dimensions."""
    if len(ends[0]) not in (1, dim):
        raise InvalidInput(f"{name} must have 1 or {dim} entries at each end, got {len(ends[0])}.")
    return tuple(jnp.broadcast_to(jnp.asarray(end), (dim,)) for end in ends)


def _flat(genotypes):
    """As vectors (N, n) in single precision."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(genotypes)]
    if not leaves or any(leaf.ndim < 1 for leaf in leaves):
        raise InvalidInput(f"genotypes must be arrays with one entry for each individual, got {shown(genotypes)}.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise InvalidInput(f"genotypes must be real numbers, got {leaf.dtype}: convert them, and round in scoring.")
        if len(leaf) != len(leaves[0]):
            raise InvalidInput(f"genotypes must have {len(leaves[0])} entries in each array, got {len(leaf)}.")
    return jnp.concatenate([leaf.reshape(len(leaf), -1).astype(jnp.float32) for leaf in leaves], axis=1)


def _like(genotypes, x):
    """Vectors in the structure, shapes and dtypes of genotypes."""
    leaves, structure = jax.tree.flatten(genotypes)
    sizes = [int(np.prod(leaf.shape[1:])) for leaf in leaves]
    parts = jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=1)
    shaped = [part.reshape(-1, *leaf.shape[1:]).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)
