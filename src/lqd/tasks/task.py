"""The contract of a task, and of a batch of tasks.

A task is a pytree: what differs between two instances (optimum, rotation, ...) are leaves, so another instance
runs in the same compiled program; what shapes the program (function, width) is static.

The evolution loop only knows batches: `K` tasks side by side, which own how they are evaluated (for BBOB: grouped
by function, so that no function is evaluated on another function's tasks). One task is run under `K` seeds by
`Repeated(task, K)`.
"""

from typing import Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, Key

from lqd.types import Evaluation, pytree, static

Box = tuple[Float[Array, " n"], Float[Array, " n"]]


@runtime_checkable
class Task(Protocol):
    """One problem: a box (or none), a batch evaluation, and its best value, if known."""

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int:
        """Length of a genotype."""
        ...

    @property
    def descriptor_dim(self) -> int: ...

    @property
    def bounds(self) -> Box | None:
        """Lowest and highest genotype, each `(dim,)`; None where the search is unbounded."""
        ...

    @property
    def descriptor_bounds(self) -> Box | None:
        """Box that MAP-Elites divides into cells, each end `(descriptor_dim,)`."""
        ...

    @property
    def f_opt(self) -> Float[Array, ""] | None:
        """The best fitness there is (maximised), where it is known."""
        ...

    def evaluate(self, key: Key[Array, ""], x: Float[Array, "B n"]) -> Evaluation:
        """What a rule sees, noise included."""
        ...

    def noiseless(self, x: Float[Array, "B n"]) -> Float[Array, " B"]:
        """The fitness that counts in scores and figures."""
        ...


@runtime_checkable
class TaskBatch(Protocol):
    """`num_tasks` problems of equal shape in one program; they share the box."""

    @property
    def num_tasks(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def descriptor_dim(self) -> int: ...

    @property
    def bounds(self) -> Box | None: ...

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation: ...

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]: ...


def start_scale(task: Task) -> float:
    """How far from the origin a search without bounds begins; a task may define it (`init_sigma`)."""
    return float(getattr(task, "init_sigma", 1.0))


@pytree
class Repeated:
    """One task, `num_tasks` times: all seeds of a run in one program."""

    task: Task
    num_tasks: int = static()

    @property
    def dim(self) -> int:
        return self.task.dim

    @property
    def descriptor_dim(self) -> int:
        return self.task.descriptor_dim

    @property
    def bounds(self) -> Box | None:
        return self.task.bounds

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        return jax.vmap(self.task.evaluate)(key, x)

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return jax.vmap(self.task.noiseless)(x)
