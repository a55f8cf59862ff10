"""A passive archive: the best solution ever seen in each of many cells. It only records: no decision depends on it.

The cells are the same for every rule, so coverage and QD score are comparable, also for rules without cells.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lqd.rules import cvt
from lqd.types import Population, pytree


@pytree
class Archive:
    """One slot per cell; an empty one has fitness `-inf`."""

    centroids: Float[Array, "C D"]
    elites: Population

    @classmethod
    def empty(cls, centroids: Float[Array, "C D"], like: Population) -> "Archive":
        """An archive for individuals shaped like those of the population `like`."""
        num_cells = centroids.shape[0]

        def slots(field):
            return jnp.zeros((num_cells, *field.shape[1:]), field.dtype)

        return cls(
            centroids,
            Population(
                slots(like.x),
                jnp.full(num_cells, -jnp.inf, like.fitness.dtype),
                slots(like.descriptor),
                {name: slots(value) for name, value in like.extras.items()},
            ),
        )

    def insert(self, newcomers: Population) -> "Archive":
        """Each newcomer fitter than the elite of its cell replaces it; at equal fitness the elite stays."""
        num_cells = self.centroids.shape[0]
        cell = cvt.nearest(newcomers.descriptor, self.centroids)
        enters = cvt.best_of_cell(newcomers.fitness, cell, num_cells) & (newcomers.fitness > self.elites.fitness[cell])
        target = jnp.where(enters, cell, num_cells)  # out of range: dropped

        def put(elite, newcomer):
            return elite.at[target].set(newcomer, mode="drop")

        return Archive(self.centroids, jax.tree.map(put, self.elites, newcomers))


def coverage(fitness: Float[Array, " C"]) -> Float[Array, ""]:
    """Share of the cells that hold a solution."""
    return jnp.mean((fitness > -jnp.inf).astype(fitness.dtype))


def offset_qd_score(fitness: Float[Array, " C"], offset: Float[Array, ""]) -> Float[Array, ""]:
    """Sum over the filled cells of fitness minus offset; values below the offset count as zero."""
    return jnp.sum(jnp.where(fitness > -jnp.inf, jnp.maximum(fitness - offset, 0.0), 0.0))
