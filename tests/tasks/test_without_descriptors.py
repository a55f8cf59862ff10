"""Tasks without their descriptors: the fitness stays, the descriptors say nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd import tasks
from lqd.tasks.task import Repeated
from lqd.tasks.without_descriptors import Altered


@pytest.mark.parametrize("kind", ["random", "zero"])
def test_only_descriptors_change(kind):
    arm = Repeated(tasks.make("arm"), 2)
    other = Altered(arm, kind)
    x = jax.random.uniform(jax.random.key(0), (2, 500, 8))
    keys = jax.random.split(jax.random.key(1), 2)
    found, expected = other.evaluate(keys, x), arm.evaluate(keys, x)
    np.testing.assert_array_equal(found.fitness, expected.fitness)
    np.testing.assert_array_equal(other.noiseless(x), arm.noiseless(x))
    assert (other.num_tasks, other.dim, other.descriptor_dim) == (2, 8, 2)
    assert found.descriptor.shape == expected.descriptor.shape
    if kind == "zero":
        assert not found.descriptor.any()
    else:
        assert abs(float(jnp.mean(found.descriptor))) < 0.1
        assert abs(float(jnp.std(found.descriptor)) - 1) < 0.1
        again = other.evaluate(jax.random.split(jax.random.key(2), 2), x)
        assert not np.any(again.descriptor == found.descriptor)
