"""COCO's noise models on minimised values f >= 0 (Hansen et al. 2009, "Noisy Functions Definitions", INRIA RR-6869).

- Gaussian: f exp(beta N)
- uniform:  f U^beta max(1, (1e9 / f)^(alpha U'))
- Cauchy:   f + alpha max(0, 1000 + [U < p] C), C standard Cauchy

After each, 1.01e-8 is added, and a value below 1e-8 is returned as it is: noise hides no target that was reached.
Parameters are those of the moderate setting times a strength in [0, 1]; the kind is data, so that one program serves
tasks of every kind. Cauchy noise is mostly the constant 1000 alpha: that is COCO's definition.

Deliberately not here: the severe setting. Penalties outside the box are disturbed with the rest of the value, where
COCO adds them afterwards; inside the box there is no difference but for Schwefel's.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lqd.types import pytree

KINDS = ("none", "gaussian", "uniform", "cauchy")
TARGET = 1e-8


@pytree
class Noise:
    """How one task is disturbed: an index into `KINDS`, and the share of the moderate setting."""

    kind: Int[Array, "*batch"]
    strength: Float[Array, "*batch"]


def sample(key: Key[Array, ""]) -> Noise:
    """Each kind with probability 1/4, strength uniform in [0, 1]."""
    kind, strength = jax.random.uniform(key, (2,))
    return Noise(jnp.floor(len(KINDS) * kind).astype(jnp.int32), strength)


def apply(
    key: Key[Array, ""], noise: Noise, value: Float[Array, "*B"], num_dims: Int[Array, ""] | int
) -> Float[Array, "*B"]:
    """Disturb each value of one task independently."""
    dtype = value.dtype
    strength = noise.strength.astype(dtype)
    n = jnp.asarray(num_dims).astype(dtype)
    gaussian, uniform, cauchy = (noise.kind == kind for kind in (1, 2, 3))

    # A task has one kind, so the kinds share two uniform numbers per value; each is kept off 0, where log and the
    # normal quantile are infinite.
    u, v = jax.random.uniform(key, (2, *value.shape), dtype, minval=jnp.finfo(dtype).eps / 4)
    normal = math.sqrt(2) * jax.scipy.special.erfinv(2 * u - 1)
    lift = jnp.maximum(0, (0.49 + 1 / n) * v * jnp.log(1e9 / jnp.maximum(value, TARGET)))
    log_factor = jnp.where(gaussian, normal, jnp.where(uniform, jnp.log(u) + lift, 0))
    outlier = jnp.where(u < 0.05 * strength, jnp.tan(math.pi * (v - 0.5)), 0)
    added = jnp.where(cauchy, 0.01 * strength * jnp.maximum(0, 1000 + outlier), 0)

    noisy = value * jnp.exp(0.01 * strength * log_factor) + added + 1.01 * TARGET
    undisturbed = (noise.kind == 0) | (strength == 0) | (value < TARGET)
    return jnp.where(undisturbed, value, noisy)
