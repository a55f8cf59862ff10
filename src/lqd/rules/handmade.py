"""The competition rules made by hand; `protocol` says what a rule is."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lqd.errors import InvalidInput
from lqd.rules import cvt, neighbours
from lqd.rules.protocol import Rule, Scores, arrays
from lqd.types import pytree, static


@pytree
class GeneticAlgorithm:
    """Global competition: the fitness itself."""

    def __call__(self, key, fitness, descriptor) -> Scores:
        fitness, descriptor = arrays(fitness, descriptor)
        return fitness


@pytree
class Random:
    """Survival by a random draw."""

    def __call__(self, key, fitness, descriptor) -> Scores:
        fitness, descriptor = arrays(fitness, descriptor)
        return jnp.where(fitness > -jnp.inf, jax.random.uniform(key, fitness.shape, fitness.dtype), -jnp.inf)


@pytree
class NoveltySearch:
    """Mean distance to the k nearest others, whatever their fitness."""

    k: int = static(default=3)

    def __call__(self, key, fitness, descriptor) -> Scores:
        fitness, descriptor = arrays(fitness, descriptor)
        mean, _ = neighbours.novelty(fitness, descriptor, self.k)
        return jnp.where(fitness > -jnp.inf, mean, -jnp.inf)


@pytree
class DominatedNoveltySearch:
    """Mean distance to the k nearest strictly fitter individuals; the fittest cannot be beaten: `+inf`."""

    k: int = static(default=3)

    def __call__(self, key, fitness, descriptor) -> Scores:
        fitness, descriptor = arrays(fitness, descriptor)
        mean, count = neighbours.dominated_novelty(fitness, descriptor, self.k)
        return jnp.where(fitness > -jnp.inf, jnp.where(count > 0, mean, jnp.inf), -jnp.inf)


@pytree
class MapElites:
    """Competition inside the cells of a Voronoi tessellation: the best of each cell keeps its fitness."""

    centroids: Float[Array, "C D"]

    def check(self, descriptor_dim: int) -> None:
        if self.centroids.shape[1] != descriptor_dim:
            raise InvalidInput(
                f"the centroids have {self.centroids.shape[1]} dimensions, descriptors {descriptor_dim}."
            )

    def annotate(self, descriptor: Float[Array, "B D"]) -> Int[Array, " B"]:
        return cvt.nearest(descriptor, self.centroids)

    def score(self, key, fitness, descriptor, notes: Int[Array, " P"]) -> Scores:
        return jnp.where(cvt.best_of_cell(fitness, notes, self.centroids.shape[0]), fitness, -jnp.inf)

    def __call__(self, key, fitness, descriptor) -> Scores:
        fitness, descriptor = arrays(fitness, descriptor)
        self.check(descriptor.shape[-1])
        return self.score(key, fitness, descriptor, self.annotate(descriptor))


RULES: dict[str, type[Rule]] = {
    "ga": GeneticAlgorithm,
    "random": Random,
    "ns": NoveltySearch,
    "dns": DominatedNoveltySearch,
    "me": MapElites,
}
NAMES, CLASSES = tuple(RULES), tuple(RULES.values())


def by_name(name: str, centroids: Float[Array, "C D"]) -> Rule:
    """The rule of this name with its usual settings, also under `jit`; MAP-Elites gets these cells."""
    return MapElites(centroids) if name == "me" else RULES[name]()
