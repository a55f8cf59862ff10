"""Evaluations without their descriptors: the fitness stays, the descriptors say nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd import tasks
from lqd.tasks.task import Repeated
from lqd.tasks.without_descriptors import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_only_descriptors_change(kind):
    arm, alter = Repeated(tasks.make("arm"), 2), KINDS[kind]
    keys = jax.random.split(jax.random.key(1), 2)
    expected = arm.evaluate(keys, jax.random.uniform(jax.random.key(0), (2, 500, 8)))
    found = alter(keys, expected)
    np.testing.assert_array_equal(found.fitness, expected.fitness)
    assert found.descriptor.shape == expected.descriptor.shape
    if kind == "zero":
        assert not found.descriptor.any()
    else:
        assert abs(float(jnp.mean(found.descriptor))) < 0.1
        assert abs(float(jnp.std(found.descriptor)) - 1) < 0.1
        again = alter(jax.random.split(jax.random.key(2), 2), expected)
        assert not np.any(again.descriptor == found.descriptor)
        noise = jax.vmap(lambda key: jax.random.normal(key, (500, 2)))(keys)
        assert not np.any(noise == found.descriptor), "not what the task itself may draw"
