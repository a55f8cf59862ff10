"""The family `bbob`, the paper's training distribution: a key in, a batch of BBOB tasks out.

Stratified: every function equally often, so that no function is evaluated on another function's tasks and every
meta-generation sees all of them. The paper draws functions uniformly; a recorded deviation.
"""

import dataclasses

from jaxtyping import Array, Key

from lqd.checks import flag, whole
from lqd.errors import InvalidInput
from lqd.tasks.bbob import instances
from lqd.tasks.bbob.instances import LandscapeBatch


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Dimension, optimum, rotations, noise model and its strength, and projection are drawn for each task."""

    functions: tuple[str, ...] = instances.TRAINING_SET
    min_dim: int = 2
    max_dim: int = 12
    descriptor_dim: int = 2
    noise: bool = True
    rotate: bool = True

    def __post_init__(self):
        names = tuple(instances.resolve(function) for function in self.functions)
        if not names or len(set(names)) < len(names):
            raise InvalidInput(f"functions must name at least one function, each once, got {self.functions}.")
        object.__setattr__(self, "functions", names)
        whole("min_dim", self.min_dim, 2)
        whole("max_dim", self.max_dim, 2)
        whole("descriptor_dim", self.descriptor_dim, 1)
        flag("noise", self.noise)
        flag("rotate", self.rotate)
        if self.max_dim < self.min_dim:
            raise InvalidInput(f"max_dim must be at least min_dim = {self.min_dim}, got {self.max_dim}.")

    @property
    def name(self) -> str:
        return "bbob"

    @property
    def version(self) -> int:
        return 1

    @property
    def multiple(self) -> int:
        return len(self.functions)

    def check_num_tasks(self, name: str, num_tasks: int) -> int:
        """A number of tasks that holds every function equally often."""
        num = len(self.functions)
        if whole(name, num_tasks, 1) % num:
            below, above = num_tasks // num * num, -(-num_tasks // num) * num
            would = f"{below} or {above}" if below else f"{above}"
            raise InvalidInput(f"{name} must be a multiple of the {num} functions, got {num_tasks}; {would} would do.")
        return num_tasks

    def sample(self, key: Key[Array, ""], num_tasks: int) -> LandscapeBatch:
        """Fresh tasks."""
        return instances.sample_batch(
            key, self.functions, num_tasks // len(self.functions), width=self.max_dim, min_dim=self.min_dim,
            max_dim=self.max_dim, descriptor_dim=self.descriptor_dim, noise=self.noise, rotate=self.rotate,
        )  # fmt: skip
