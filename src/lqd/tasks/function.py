"""A user's traceable function as a task."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static


@pytree
class FunctionTask:
    """`function(x (B, n)) -> (fitness, descriptor)` or `(fitness, descriptor, extras)`, compiled into the loop.

    `sign` is -1 where the function is to be minimised: inside, fitness is always maximised.
    """

    bounds: Box | None
    sign: Float[Array, ""]
    function: Callable[[Any], Any] = static()
    dim: int = static()
    descriptor_dim: int = static()
    descriptor_bounds: Box | None = None
    f_opt: Float[Array, ""] | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def evaluate(self, key, x: Float[Array, "B n"]) -> Evaluation:
        fitness, descriptor, *rest = self.function(x)
        extras = dict(rest[0]) if rest else {}
        return Evaluation(self.sign * fitness.astype(x.dtype), descriptor.astype(x.dtype), extras)

    def noiseless(self, x: Float[Array, "B n"]) -> Float[Array, " B"]:
        return self.evaluate(None, x).fitness
