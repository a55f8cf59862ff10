"""The same survivors as pyribs keeps, where fitnesses and scores are distinct (it compares with >=, we with >)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import loop
from lqd.rules import cvt
from lqd.rules.handmade import DominatedNoveltySearch, MapElites
from lqd.types import Evaluation, Population

archives = pytest.importorskip("ribs.archives", reason="pyribs is not installed: pip install ribs")
NUM, BATCH, DIM = 40, 24, 3


def batches(seed, num_batches=12):
    generator = np.random.default_rng(seed)
    for _ in range(num_batches):
        x = generator.random((BATCH, DIM)).astype(np.float32)
        yield x, generator.permutation(10_000)[:BATCH].astype(np.float32), x[:, :2] * x[:, 2:]


def survivors_of(rule, data, num):
    like = Population(jnp.zeros((1, 1, DIM)), jnp.zeros((1, 1)), jnp.zeros((1, 1, 2)))
    state = loop.empty_state(jax.random.key(0)[None], rule, like, num)
    for x, fitness, descriptor in data:
        evaluation = Evaluation(jnp.asarray(fitness)[None], jnp.asarray(descriptor)[None])
        state = loop.jit_absorb(state, state.generation, rule, jnp.asarray(x)[None], evaluation)
        keep = np.asarray(state.population.filled[0])
        yield {tuple(row) for row in np.asarray(state.population.x[0])[keep].tolist()}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dns_archive(seed):
    archive = archives.DNSArchive(solution_dim=DIM, measure_dim=2, capacity=NUM, k_neighbors=3, dtype=np.float32)
    for (x, fitness, descriptor), ours in zip(
        batches(seed), survivors_of(DominatedNoveltySearch(3), batches(seed), NUM), strict=True
    ):
        archive.add(x, fitness, descriptor)
        assert ours == {tuple(row) for row in archive.data("solution").tolist()}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cvt_archive(seed):
    centroids = cvt.centroids(NUM, np.zeros(2), np.ones(2))
    archive = archives.CVTArchive(
        solution_dim=DIM, centroids=np.asarray(centroids), ranges=[(0, 1), (0, 1)], dtype=np.float32
    )
    for (x, fitness, descriptor), ours in zip(
        batches(seed), survivors_of(MapElites(centroids), batches(seed), NUM), strict=True
    ):
        archive.add(x, fitness, descriptor)
        assert ours == {tuple(row) for row in archive.data("solution").tolist()}
