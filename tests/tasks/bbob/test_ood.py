"""The out-of-distribution functions against 40-digit references, and their float32 forms against float64."""

import json
import pathlib

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.tasks.bbob import ood

REFERENCE = json.loads((pathlib.Path(__file__).parents[2] / "data" / "ood_reference.json").read_text())
DIMS = (2, 8, 16)
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def points(dim):
    i = np.arange(1, dim + 1)
    return np.stack([0.3 * i, np.full(dim, -1.5), -2 + 0.75 * ((i - 1) % 7)])


@jax.jit
def all_functions(x, x_opt, R, num_dims):
    """(4, points) in a frame of width 16."""
    return jnp.stack([ood.value(name, x, x_opt[i], R, num_dims) for i, name in enumerate(ood.NAMES)])


def pad(array, fill):
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 16 - array.shape[-1])], constant_values=fill)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("fill", [0.0, 1e5])
def test_agrees_with_the_reference(dim, fill):
    """With x_opt = z* and no rotation, the function is the textbook one."""
    z_opt = np.asarray([ood.optimum(name, dim) for name in ood.NAMES])
    with x64(True):
        value = np.asarray(all_functions(pad(points(dim), fill), pad(z_opt, -fill), np.eye(16), dim))
    expected = [[REFERENCE[name][str(dim)][p] for p in "ABC"] for name in ood.NAMES]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("dim", DIMS)
def test_float32_keeps_its_digits(dim):
    rng = np.random.default_rng(dim)
    R = np.eye(16, dtype=np.float32)
    R[:dim, :dim] = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    x_opt = np.float32(rng.uniform(-4, 4, 16))
    scale = np.asarray([0, 1e-30, 1e-6, 1e-4, 1e-2, 1, 4])[:, None]
    x = np.float32(x_opt + scale * rng.uniform(-1, 1, (7, 16)))
    each = np.broadcast_to(x_opt, (4, 16))
    value = np.asarray(all_functions(x, each, R, dim))
    with x64(True):
        exact = np.asarray(all_functions(np.float64(x), np.float64(each), np.float64(R), dim))
    assert value.dtype == np.float32
    assert np.all(value >= 0)
    np.testing.assert_array_equal(value[:, 0], 0)
    np.testing.assert_allclose(value, exact, rtol=2e-5, atol=1e-30)


def test_rotates_about_the_optimum():
    """A quarter turn: u = (-1, 2) for x - x_opt = (2, 1)."""
    quarter = np.asarray([[0.0, -1.0], [1.0, 0.0]])
    value = ood.value("dixon_price", np.asarray([3.0, 0.0]), np.asarray([1.0, -1.0]), quarter)
    z = np.asarray([1.0 - 1.0, 2**-0.5 + 2.0])
    assert value == pytest.approx((z[0] - 1) ** 2 + 2 * (2 * z[1] ** 2 - z[0]) ** 2, rel=1e-6)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"unknown function 'akley'. Did you mean 'ackley'"):
        ood.value("akley", np.zeros(2), np.zeros(2), np.eye(2))
