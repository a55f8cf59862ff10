"""Sharp attention in the kernel's steps: compiled with all optimisations, unlike the other tests of the kernel."""

import functools

import jax
import pytest
import rulesets

from lqd.rules.learned import dispatch, network

PAPER = rulesets.PAPER


@functools.partial(jax.jit, static_argnums=(0, 4))
def interpreted(num_heads, params, x, filled, exact=False):
    return dispatch.forward(params, num_heads, x, filled, exact=exact, interpret=True)


@pytest.mark.parametrize("num", [40, 300])
def test_sharp_attention_is_exact_to_more_than_half_precision(num):
    """Logits in the hundreds: their rounding to half precision alone would change weights by a tenth."""
    params = rulesets.noisy(PAPER, sharpness=4.0)
    x, filled = rulesets.inputs(num, PAPER)
    expected = network.forward(params, 4, x, filled)
    assert rulesets.relative_error(interpreted(4, params, x, filled), expected, filled) < 2e-3
    assert rulesets.relative_error(interpreted(4, params, x, filled, exact=True), expected, filled) < 1e-4
