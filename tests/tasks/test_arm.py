import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.tasks.arm import Arm
from lqd.tasks.task import Task

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("x", "position"),
    [
        (np.full(8, 0.5), (1.0, 0.5)),  # straight
        (np.r_[0.75, np.full(7, 0.5)], (0.5, 1.0)),  # straight up
        (np.r_[0.0, np.full(7, 0.5)], (0.0, 0.5)),  # straight back
        (np.full(8, 0.75), (0.5, 0.5)),  # round in a square, twice
        (np.r_[np.full(4, 0.5), 0.75, np.full(3, 0.5)], (0.75, 0.75)),  # an elbow in the middle
    ],
)
def test_by_hand(x, position):
    evaluation = Arm().evaluate(KEY, jnp.asarray(x, jnp.float32)[None])
    np.testing.assert_allclose(evaluation.descriptor[0], position, atol=1e-6)
    np.testing.assert_allclose(evaluation.fitness[0], -np.std(x), atol=1e-7)


@pytest.mark.parametrize("num_joints", [1, 3, 8])
def test_agrees_with_complex_arithmetic(num_joints):
    x = np.random.default_rng(num_joints).uniform(size=(50, num_joints))
    end = np.zeros(50, complex)
    for joint in reversed(range(num_joints)):  # from the hand to the base: turn all that hangs on the joint
        end = np.exp(1j * (2 * np.pi * x[:, joint] - np.pi)) * (1 / num_joints + end)
    arm = Arm(num_joints)
    evaluation = jax.jit(arm.evaluate)(KEY, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(evaluation.descriptor, np.stack([end.real, end.imag], 1) / 2 + 0.5, atol=2e-6)
    np.testing.assert_allclose(evaluation.fitness, -x.std(axis=1), atol=1e-6)
    np.testing.assert_allclose(arm.noiseless(jnp.asarray(x, jnp.float32)), evaluation.fitness, rtol=1e-6)


def test_contract():
    arm = Arm()
    assert isinstance(arm, Task)
    assert (arm.name, arm.dim, arm.descriptor_dim, float(arm.f_opt)) == ("arm", 8, 2, 0.0)
    np.testing.assert_array_equal(arm.bounds, [np.zeros(8), np.ones(8)])
    np.testing.assert_array_equal(arm.descriptor_bounds, [np.zeros(2), np.ones(2)])
    with pytest.raises(ValueError, match="num_joints must be a whole number of at least 1, got 0"):
        Arm(0)
