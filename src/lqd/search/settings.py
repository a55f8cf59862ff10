"""What `optimize`, `AskTell` and `lqd run` have in common: checked once, at the door, before anything compiles."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE, Start
from lqd.evolution.variation import ISO_SIGMA, LINE_SIGMA, FunctionOperator, IsoLine, Operator
from lqd.rules import catalogue, cvt, trained

# Other cells than those of MAP-Elites, which would else be measured on the very cells that it fills.
ARCHIVE_SEED = 1

_A_KEY = jax.eval_shape(lambda: jax.random.key(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """All that shapes a search but the function and the budget; the arguments of `optimize` of the same names."""

    dim: int
    bounds: Any = None
    rule: Any = "dns"
    population_size: int = POPULATION_SIZE
    batch_size: int = BATCH_SIZE
    iso_sigma: float = ISO_SIGMA
    line_sigma: float = LINE_SIGMA
    x0: Any = None
    init_sigma: float | None = None  # 1, or what a task says
    descriptor_bounds: Any = None
    minimize: bool = False
    on_nan: str = "eliminate"
    reproduction: Any = None
    archive_cells: int | None = None
    qd_offset: float | None = None
    seed: int = 0
    rule_name: str = dataclasses.field(init=False)

    def __post_init__(self):
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        for name in ("dim", "population_size", "batch_size"):
            put(name, checks.size(name, getattr(self, name)))
        put("seed", checks.seed(self.seed))
        put("iso_sigma", checks.real("iso_sigma", self.iso_sigma))
        put("line_sigma", checks.real("line_sigma", self.line_sigma))
        init_sigma = 1.0 if self.init_sigma is None else self.init_sigma
        put("init_sigma", checks.real("init_sigma", init_sigma, positive=True))
        put("minimize", checks.flag("minimize", self.minimize))
        checks.one_of("on_nan", self.on_nan, ("eliminate", "raise"))
        if self.bounds is not None:
            put("bounds", checks.box("bounds", self.bounds, self.dim))
        if self.descriptor_bounds is not None:
            put("descriptor_bounds", checks.box("descriptor_bounds", self.descriptor_bounds, None))
        if self.x0 is not None:
            put("x0", self._checked_x0())
        if self.archive_cells is not None:
            put("archive_cells", checks.size("archive_cells", self.archive_cells))
            if self.descriptor_bounds is None:
                raise InvalidInput("archive_cells needs descriptor_bounds=(low, high): the box that the cells divide.")
        if self.qd_offset is not None:
            put("qd_offset", checks.finite("qd_offset", self.qd_offset))
            if self.archive_cells is None:
                raise InvalidInput("qd_offset is for the QD score of the archive: give archive_cells= too.")
        self._check_reproduction()
        put("rule_name", self.rule if isinstance(self.rule, str) else _name(self.rule))
        if trained.is_file(self.rule):
            put("rule_name", str(self.rule))
            put("rule", trained.read(self.rule))  # once: the file may change while the search runs
        if not (self.rule_name == "me" and self.descriptor_bounds is not None):  # its cells wait for the dimensions
            self.resolved_rule(None)

    def _check_reproduction(self) -> None:
        if self.reproduction is None:
            return
        if not callable(self.reproduction):
            raise InvalidInput(f"reproduction must be a function (key, x1, x2) -> x, got {shown(self.reproduction)}.")
        x = jax.ShapeDtypeStruct((self.dim,), jnp.float32)
        contract = "(key, x1 (dim,), x2 (dim,)) -> x (dim,)"
        checks.function_of_arrays("reproduction", self.operator(), contract, x.shape, _A_KEY, x, x)

    def _checked_x0(self) -> np.ndarray:
        x0 = checks.float32(checks.numbers_array("x0", self.x0, "x0"))
        if x0.shape[-1:] != (self.dim,) or x0.ndim > 2 or not len(x0):
            raise InvalidInput(f"x0 must have shape ({self.dim},) or (points, {self.dim}), got {x0.shape}.")
        if not np.isfinite(x0).all():
            raise InvalidInput("x0 must be finite.")
        if x0.ndim == 2 and len(x0) > self.population_size:
            raise InvalidInput(f"x0 has {len(x0)} points for a population of {self.population_size}: choose that many.")
        if self.bounds is not None and not ((x0 >= self.bounds[0]) & (x0 <= self.bounds[1])).all():
            raise InvalidInput("x0 must lie within the bounds; clip it first: np.clip(x0, low, high).")
        return x0

    def resolved_rule(self, descriptor_dim: int | None):
        """The rule; MAP-Elites with bounds given as two numbers waits for the number of dimensions."""
        return catalogue.resolve(
            self.rule, population_size=self.population_size, batch_size=self.batch_size,
            descriptor_bounds=self.descriptor_box(descriptor_dim), descriptor_dim=descriptor_dim,
        )  # fmt: skip

    def descriptor_box(self, descriptor_dim: int | None):
        """Both ends of the descriptor box, repeated over all dimensions if given as numbers."""
        if self.descriptor_bounds is None:
            return None
        low, high = self.descriptor_bounds
        if descriptor_dim is not None and len(low) == 1 < descriptor_dim:
            return np.repeat(low, descriptor_dim), np.repeat(high, descriptor_dim)
        if descriptor_dim is not None and len(low) != descriptor_dim:
            raise InvalidInput(f"descriptor_bounds have {len(low)} dimensions, the descriptors {descriptor_dim}.")
        return low, high

    def num_generations(self, num_evaluations) -> int:
        """Whole generations in a budget that also pays for the start population."""
        if isinstance(num_evaluations, float) and num_evaluations.is_integer():
            num_evaluations = int(num_evaluations)  # 1e6
        budget = checks.whole("num_evaluations", num_evaluations, 1)
        if budget < self.population_size + self.batch_size:
            raise InvalidInput(
                f"num_evaluations={budget} is less than the start population and one batch "
                f"({self.population_size} + {self.batch_size}); give more, or a smaller population_size."
            )
        num = (budget - self.population_size) // self.batch_size
        if num >= 2**31:
            raise InvalidInput(f"num_evaluations must be less than 2**31 batches, got {shown(num_evaluations)}.")
        return num

    def centroids(self, descriptor_dim: int):
        """Cells of the passive archive, the same for every rule."""
        if self.archive_cells is None:
            return None
        low, high = self.descriptor_box(descriptor_dim)
        return cvt.centroids(self.archive_cells, low, high, ARCHIVE_SEED)

    def operator(self) -> Operator:
        if self.reproduction is None:
            return IsoLine.with_steps(self.iso_sigma, self.line_sigma)
        leaves = jax.tree.leaves(self.reproduction)
        plain = len(leaves) == 1 and leaves[0] is self.reproduction
        return FunctionOperator(self.reproduction) if plain else self.reproduction

    @property
    def sign(self) -> float:
        """1 where fitness is maximised, -1 where it is minimised."""
        return -1.0 if self.minimize else 1.0

    def offset(self):
        """The archive's offset, maximised."""
        return None if self.qd_offset is None else jnp.float32(self.sign * self.qd_offset)

    def start(self) -> Start:
        return Start(None if self.x0 is None else jnp.asarray(self.x0), jnp.float32(self.init_sigma))

    def key(self):
        return jax.random.key(self.seed)[None]

    def box(self):
        return None if self.bounds is None else tuple(jnp.asarray(end) for end in self.bounds)

    def info(self) -> dict[str, Any]:
        """Settings as plain values, for results and files."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["rule"] = values.pop("rule_name")
        values["reproduction"] = None if self.reproduction is None else _name(self.reproduction)
        for name in ("bounds", "descriptor_bounds"):
            values[name] = None if values[name] is None else [_short(end) for end in values[name]]
        values["x0"] = None if self.x0 is None else self.x0.tolist()
        return values


def _short(end: np.ndarray):
    """One number for an end of a box that is the same in every dimension."""
    return float(end[0]) if (end == end[0]).all() and len(end) > 1 else end.tolist()


def _name(function) -> str:
    return getattr(function, "__name__", type(function).__name__)
