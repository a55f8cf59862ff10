"""One competition by itself, for populations that are kept outside of the loop: pyribs's archives, pools of programs.

Everybody's fitness and descriptor go in, scores and who stays come out, in NumPy. The program is compiled once for a
size of batch, rounded up to a power of two; empty slots fill it up.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lqd.evolution import loop
from lqd.rules import catalogue, neighbours, scaled
from lqd.rules.protocol import Rule, ready
from lqd.types import Population

SMALLEST_BATCH = 32


class Verdict(NamedTuple):
    """Of everybody in one competition; `stay` are the rows of those who stay, best score first."""

    scores: np.ndarray
    novelty: np.ndarray
    stay: np.ndarray


class Contest:
    """A competition rule as it judges a population of at most `capacity`.

    Where a box is known, rules of distances see descriptors in units of it, and what is outside at its edge. Elsewhere
    they see them as they are, or with `by_spread` in units of the spread of those present.
    """

    def __init__(
        self,
        given: Any,
        capacity: int,
        descriptor_dim: int,
        box: tuple[np.ndarray, np.ndarray] | None,
        outside: str,
        seed: int,
        by_spread: bool = False,
    ):
        self._capacity, self._descriptor_dim = capacity, descriptor_dim
        self.rule = catalogue.resolve(
            given, population_size=capacity, batch_size=SMALLEST_BATCH, descriptor_bounds=box,
            descriptor_dim=descriptor_dim,
        )  # fmt: skip
        self._seen = self.rule if box is None and not by_spread else scaled.in_units(self.rule, box, outside)
        self._key = jax.random.key(seed)
        self._sizes = {SMALLEST_BATCH}  # of batches that the rule was looked at with
        self.num_held = 0  # competitions so far: each has random numbers of its own

    def hold(self, fitness: np.ndarray, descriptor: np.ndarray, num_new: int) -> Verdict:
        """The competition among all of these, of whom the last `num_new` are new."""
        batch = max(SMALLEST_BATCH, 1 << max(num_new - 1, 0).bit_length())
        if batch not in self._sizes:
            catalogue.resolve(
                self.rule, population_size=self._capacity, batch_size=batch, descriptor_dim=self._descriptor_dim
            )
            self._sizes.add(batch)
        num, size = len(fitness), self._capacity + batch
        padded = np.full(size, -np.inf, np.float32), np.zeros((size, self._descriptor_dim), np.float32)
        padded[0][:num], padded[1][:num] = fitness, descriptor
        key = jax.random.fold_in(self._key, self.num_held)
        self.num_held += 1
        scores, novelty, stay = _compete(self._seen, key, *map(jnp.asarray, padded), self._capacity)
        stay = np.asarray(stay)
        return Verdict(np.asarray(scores, np.float64)[:num], np.asarray(novelty, np.float64)[:num], stay[stay >= 0])


@functools.partial(jax.jit, static_argnames="num")
def _compete(rule: Rule, key, fitness, descriptor, num: int):
    """Score and novelty of everybody, and the rows of those who stay, best first; -1 for a slot that stays empty."""
    scores = ready(rule)(key, fitness, descriptor)
    scores = jnp.where((fitness > -jnp.inf) & ~jnp.isnan(scores), scores, -jnp.inf)
    everybody = Population(descriptor, fitness, descriptor)
    survivors, row = loop.survive(scores, everybody, jnp.arange(len(scores)), num)
    return scores, neighbours.novelty(fitness, descriptor)[0], jnp.where(survivors.filled, row, -1)
