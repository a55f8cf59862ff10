"""The learned competition rule: the network as a rule, computed the fastest way this device has."""

import dataclasses
import functools
import hashlib
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.errors import InvalidInput
from lqd.io.files import flatten
from lqd.rules.learned import dispatch, network, recipe2, recipe3
from lqd.rules.learned.layers import Params
from lqd.rules.learned.network import Architecture, init_params
from lqd.rules.protocol import arrays
from lqd.types import pytree, static


@pytree
class Learned:
    """The transformer as a rule; `params` are the leaves a meta-optimiser works on."""

    params: Params
    architecture: Architecture = static(default=Architecture())
    packed: Any = None  # the weights as a kernel reads them, if that has been computed

    @classmethod
    def init(cls, key: Key[Array, ""], architecture: Architecture = Architecture()) -> "Learned":  # noqa: B008
        return cls(init_params(key, architecture), architecture)

    def ready(self) -> "Learned":
        forward = dispatch.fastest_forward(self.architecture)
        if forward.func is not dispatch.forward or self.packed is not None:
            return self
        return dataclasses.replace(self, packed=dispatch.pack(self.params, self.architecture.num_heads))

    def fingerprint(self) -> str:
        """Changes with the weights, and with the version of what else the scores depend on."""
        digest = hashlib.sha256()
        for name, array in sorted(flatten(self.params).items()):
            digest.update(name.encode() + array.tobytes())
        if self.architecture.recipe in network.OF_DISTANCES:
            digest.update(f"tie-break {recipe2.TIE_BREAK}".encode())
        return digest.hexdigest()[:16]

    def check(self, descriptor_dim: int) -> None:
        """Recipe 1 has a weight column for each descriptor dimension, so it is tied to their number; others are not."""
        expected, received = self.architecture.descriptor_dim, descriptor_dim
        if self.architecture.recipe == 1 and expected != received:
            raise InvalidInput(
                f"this learned rule reads descriptors of {expected} dimensions (feature recipe "
                f"{self.architecture.recipe} is tied to the dimension it was trained with), got {received}. "
                f"Use one trained for {received}, or a rule for any dimension: 'lqd-f', 'lqd-n', 'lqd-fn', 'dns', "
                "'ns', 'me', 'ga'."
            )

    def __call__(self, key, fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Float[Array, " P"]:
        outputs = self._outputs(*arrays(fitness, descriptor))
        return outputs[:, 0] if self.guides else outputs

    @property
    def guides(self) -> bool:
        """Whether it also leads variation."""
        return self.architecture.recipe == 3

    def guide(
        self, key, fitness: Float[Array, " P"], descriptor: Float[Array, "P D"], carried: Float[Array, "P T"]
    ) -> tuple[Float[Array, " P"], Float[Array, "P A"]]:
        """Scores, and advice on breeding, for individuals that carry their steps and their age (`recipe3`)."""
        outputs = self._outputs(*arrays(fitness, descriptor), carried)
        return outputs[:, 0], jnp.where(jnp.isfinite(outputs[:, 1:]), outputs[:, 1:], 0.0)

    def _outputs(self, fitness, descriptor, carried=None) -> Array:
        self.check(descriptor.shape[-1])
        filled = fitness > -jnp.inf
        if carried is None:
            x = network.features(fitness, descriptor, self.architecture.recipe)
        else:
            x = recipe3.features(fitness, descriptor, carried)
        forward = dispatch.fastest_forward(self.architecture)
        if self.packed is not None and forward.func is dispatch.forward:
            forward = functools.partial(forward, packed=self.packed)
        outputs = forward(self.params, self.architecture.num_heads, x, filled)
        return jnp.where(filled.reshape(filled.shape + (1,) * (outputs.ndim - 1)), outputs, -jnp.inf)
