"""Cells of a centroidal Voronoi tessellation: making them, finding the cell of a descriptor, keeping the best of
each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lqd.rules.blocks import by_blocks
from lqd.rules.rescaling import square_scale


@functools.lru_cache(maxsize=32)
def _unit_centroids(num_cells: int, num_dims: int, seed: int) -> np.ndarray:
    from scipy.spatial import cKDTree

    generator = np.random.default_rng(seed)
    samples = generator.random((max(20_000, 25 * num_cells), num_dims))
    centroids = generator.random((num_cells, num_dims))
    for _ in range(50):
        _, cell = cKDTree(centroids).query(samples)
        size = np.bincount(cell, minlength=num_cells)
        total = np.stack([np.bincount(cell, samples[:, i], num_cells) for i in range(num_dims)], axis=1)
        moved = np.where(size[:, None] > 0, total / np.maximum(size, 1)[:, None], centroids)
        converged = np.max(np.abs(moved - centroids)) < 1e-4
        centroids = moved
        if converged:
            break
    return centroids


def centroids(
    num_cells: int, low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], seed: int = 0
) -> Float[Array, "C D"]:
    """Centres of `num_cells` cells of about equal size that fill the box: Lloyd's algorithm on uniform samples.

    A function of the numbers given, and of nothing else: equal calls give equal cells, for every algorithm compared.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    scaled = low + _unit_centroids(num_cells, len(low), seed) * (high - low)
    return jax.device_put(scaled.astype(np.float32))


def nearest(descriptor: Float[Array, "P D"], centroids: Float[Array, "C D"]) -> Int[Array, " P"]:
    """Index of the nearest centroid, the lower one of two at equal distance; 0 for a descriptor that is not finite.

    Two vectorised minimum reductions; `argmin` would be one scalar loop, five times slower on a CPU.
    """
    scale = square_scale(centroids)
    # Far outside the cells only the direction matters, and squares must stay finite. Without the barrier the scaling
    # would be fused into, and redone for, every pair.
    descriptor, centroids = jax.lax.optimization_barrier((jnp.clip(descriptor * scale, -1e18, 1e18), centroids * scale))
    # float32 counts exactly up to 2**24 cells, and its minimum is vectorised where that of integers is not.
    index = jnp.arange(centroids.shape[0], dtype=jnp.float32)[:, None]

    def of_rows(rows):
        point = descriptor[rows]
        distance = jnp.zeros((centroids.shape[0], point.shape[0]), point.dtype)
        for column in range(point.shape[1]):
            distance += (centroids[:, column, None] - point[None, :, column]) ** 2
        # Stored once: computed anew in each reduction, the last bit could differ, and the nearest would not be found.
        distance = jax.lax.optimization_barrier(distance)
        first = jnp.min(jnp.where(distance == jnp.min(distance, axis=0), index, jnp.inf), axis=0)
        return jnp.where(first < jnp.inf, first, 0.0).astype(jnp.int32)

    return by_blocks(of_rows, descriptor.shape[0], centroids.shape[0])


def best_of_cell(fitness: Float[Array, " P"], cell: Int[Array, " P"], num_cells: int) -> Bool[Array, " P"]:
    """Which individuals are the fittest of their cells; of equals, the one with the lower index; never one with fitness
    -inf."""
    num = fitness.shape[0]
    best = jax.ops.segment_max(fitness, cell, num_cells)
    winner = (fitness > -jnp.inf) & (fitness == best[cell])
    index = jnp.arange(num)
    first = jax.ops.segment_min(jnp.where(winner, index, num), cell, num_cells)
    return winner & (index == first[cell])
