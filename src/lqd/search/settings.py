"""What `optimize`, `AskTell` and `lqd run` have in common: checked once, at the door, before anything compiles."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, shown, unknown
from lqd.evolution import loop
from lqd.evolution.led import Led, led_by
from lqd.evolution.variation import (
    ISO_SIGMA,
    LINE_SIGMA,
    FunctionOperator,
    IsoLine,
    Operator,
    OwnVariation,
    Pairs,
    Spread,
    Start,
    Variation,
    first_traits,
)
from lqd.rules import catalogue, cvt, scaled, trained
from lqd.search import defaults

# Not the cells of MAP-Elites, which would otherwise be measured on the very cells that it fills.
ARCHIVE_SEED = 1

VARIATIONS = ("spread", "led", "paper")

_A_KEY = jax.eval_shape(lambda: jax.random.key(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that shapes a search except the function and the budget: the arguments of `optimize` of the same
    names."""

    dim: int
    bounds: Any = None
    rule: Any = defaults.RULE
    population_size: Any = None  # whole numbers, from here on
    batch_size: Any = None
    variation: Any = defaults.VARIATION
    iso_sigma: Any = None  # from here on None, a number, or a vector
    line_sigma: float | None = None
    x0: Any = None
    init_sigma: Any = None  # 1, or what the task says
    descriptor_bounds: Any = None
    outside: str = "edge"
    minimize: bool = False
    on_nan: str = "eliminate"
    reproduction: Any = None
    archive_cells: int | None = None
    qd_offset: float | None = None
    seed: int = 0
    rule_name: str = dataclasses.field(init=False)

    def __post_init__(self):
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        put("dim", checks.size("dim", self.dim))
        if self.variation is None:
            has_own_steps = any(given is not None for given in (self.iso_sigma, self.line_sigma, self.reproduction))
            put("variation", "led" if catalogue.guides(self.rule) and not has_own_steps else "spread")
        self._check_variation()
        sizes = defaults.completed(self.population_size, self.batch_size, defaults.ASK_TELL, self.is_paper)
        for name, size in zip(("population_size", "batch_size"), sizes, strict=True):
            put(name, checks.size(name, size))
        put("seed", checks.seed(self.seed))
        if self.iso_sigma is not None:
            put("iso_sigma", checks.steps("iso_sigma", self.iso_sigma, self.dim))
        if self.line_sigma is not None:
            put("line_sigma", checks.real("line_sigma", self.line_sigma))
        init_sigma = 1.0 if self.init_sigma is None else self.init_sigma
        put("init_sigma", checks.steps("init_sigma", init_sigma, self.dim, positive=True))
        put("minimize", checks.flag("minimize", self.minimize))
        checks.one_of("on_nan", self.on_nan, ("eliminate", "raise"))
        checks.one_of("outside", self.outside, ("edge", "free"))
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
        if catalogue.is_file(self.rule):
            put("rule_name", str(self.rule))
            put("rule", trained.read(self.rule))  # once: the file may change while the search runs
        if not (self.rule_name == "me" and self.descriptor_bounds is not None):  # its cells wait for the dimensions
            self.resolved_rule(None)

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper's loop: its steps and sizes, descriptors as they are."""
        return isinstance(self.variation, str) and self.variation == "paper"

    def _check_variation(self) -> None:
        if isinstance(self.variation, str) and self.variation not in VARIATIONS:
            raise unknown("variation", self.variation, VARIATIONS)
        if isinstance(self.variation, type) or not isinstance(self.variation, str | Variation):
            raise InvalidInput(
                f"variation must be one of {', '.join(map(repr, VARIATIONS))}, or an object with first(num) and "
                f"children(key, population, box, start, batch_size), got {shown(self.variation)}."
            )
        if not isinstance(self.variation, str):
            checks.traits(_name(self.variation), functools.partial(first_traits, self.variation, dim=self.dim))
        steps = [name for name in ("iso_sigma", "line_sigma") if getattr(self, name) is not None]
        if self.reproduction is not None:
            others = steps if isinstance(self.variation, str) else ["variation", *steps]
            if others:
                raise InvalidInput(f"reproduction takes the place of {' and '.join(others)}: leave one of them out.")
        elif steps and (self.variation == "led" or not isinstance(self.variation, str)):
            name = repr(self.variation) if isinstance(self.variation, str) else _name(self.variation)
            raise InvalidInput(f"variation {name} has its own steps: leave {' and '.join(steps)} out.")
        elif self.is_paper:
            for name, value in (("iso_sigma", ISO_SIGMA), ("line_sigma", LINE_SIGMA)):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)

    def _check_reproduction(self) -> None:
        if self.reproduction is None:
            return
        if not callable(self.reproduction):
            raise InvalidInput(f"reproduction must be a function (key, x1, x2) -> x, got {shown(self.reproduction)}.")
        x = jax.ShapeDtypeStruct((self.dim,), jnp.float32)
        contract = "(key, x1 (dim,), x2 (dim,)) -> x (dim,)"
        checks.function_of_arrays("reproduction", self._own_operator(), contract, x.shape, _A_KEY, x, x)

    def _checked_x0(self) -> np.ndarray:
        x0 = checks.float32(checks.numbers_array("x0", self.x0, "x0"))
        if x0.shape[-1:] != (self.dim,) or x0.ndim > 2 or not len(x0):
            raise InvalidInput(f"x0 must have shape ({self.dim},) or (points, {self.dim}), got {x0.shape}.")
        if not np.isfinite(x0).all():
            raise InvalidInput("x0 must be finite.")
        if x0.ndim == 2:
            checks.size("the number of points of x0", len(x0))
        if self.bounds is None:
            return x0
        low, high = (np.broadcast_to(end, x0.shape) for end in self.bounds)
        for where in np.argwhere((x0 < low) | (x0 > high))[:1]:
            at = tuple(where.tolist())
            raise InvalidInput(
                f"x0 must lie within the bounds, but x0[{', '.join(map(str, at))}] is {x0[at]:g}, not between "
                f"{low[at]:g} and {high[at]:g}; clip it first: np.clip(x0, low, high)."
            )
        return x0

    def resolved_rule(self, descriptor_dim: int | None):
        """The rule; MAP-Elites with bounds given as two numbers waits for the number of dimensions.

        Where that is known, it is the rule of a search: one of distances sees descriptors in units of their bounds or
        spread, but in the paper's loop; and one that leads variation does so, unless the user's has its own steps.
        """
        box = self.descriptor_box(descriptor_dim)
        rule = catalogue.resolve(
            self.rule, population_size=self.population_size, batch_size=self.batch_size, descriptor_bounds=box,
            descriptor_dim=descriptor_dim,
        )  # fmt: skip
        if self.is_paper or descriptor_dim is None:
            return rule
        return led_by(scaled.in_units(rule, box, self.outside), self.resolved_variation())

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
        """Whole generations in a budget that includes the initial population."""
        budget, num_given = checks.budget(num_evaluations), self.num_given_batches
        needed = self.population_size + max(num_given, 1) * self.batch_size
        if budget < needed and num_given:
            raise InvalidInput(
                f"num_evaluations={budget} does not cover the {len(self.x0)} points of x0, evaluated in whole "
                f"batches of {self.batch_size}; give at least {needed}, or fewer points."
            )
        if budget < needed:
            raise InvalidInput(
                f"num_evaluations={budget} is less than the initial population and one batch "
                f"({self.population_size} + {self.batch_size}); give more, or a smaller population_size."
            )
        num = (budget - self.population_size) // self.batch_size
        if num >= 2**31:
            raise InvalidInput(f"num_evaluations must be less than 2**31 batches, got {shown(num_evaluations)}.")
        return num

    @property
    def num_given_batches(self) -> int:
        """Batches of the points of `x0` for which the initial population has no room."""
        if self.x0 is None or self.x0.ndim == 1:
            return 0
        return loop.num_given_batches(Start(self.x0), self.population_size, self.batch_size)

    def centroids(self, descriptor_dim: int):
        """Cells of the passive archive, the same for every rule."""
        if self.archive_cells is None:
            return None
        low, high = self.descriptor_box(descriptor_dim)
        return cvt.centroids(self.archive_cells, low, high, ARCHIVE_SEED)

    def _own_operator(self) -> Operator:
        leaves = jax.tree.leaves(self.reproduction)
        plain = len(leaves) == 1 and leaves[0] is self.reproduction
        return FunctionOperator(self.reproduction) if plain else self.reproduction

    def resolved_variation(self) -> Operator | Variation:
        """What makes children. Steps that were given are relative to the bounds, or the start's scale without any; in
        the paper's loop they are absolute, and it has a plain operator as ever."""
        if self.reproduction is not None:
            return self._own_operator() if self.is_paper else Pairs(self._own_operator())
        if not isinstance(self.variation, str):
            leaves = jax.tree.leaves(self.variation)
            plain = len(leaves) == 1 and leaves[0] is self.variation
            return OwnVariation(self.variation) if plain else self.variation
        if self.is_paper:
            return IsoLine(jnp.asarray(self.iso_sigma, jnp.float32), jnp.float32(self.line_sigma))
        if self.variation == "led":
            return Led()
        if self.iso_sigma is None and self.line_sigma is None:
            bounds = self.descriptor_bounds
            if bounds is not None:
                bounds = tuple(jnp.asarray(end, jnp.float32) for end in bounds)
            return Spread(bounds, self.outside == "edge")
        iso, line = ISO_SIGMA if self.iso_sigma is None else self.iso_sigma, self.line_sigma
        width = self.init_sigma if self.bounds is None else self.bounds[1] - self.bounds[0]
        iso = np.broadcast_to(checks.float32(np.asarray(iso, np.float64) * width), (self.dim,))
        return Pairs(IsoLine(jnp.asarray(iso), jnp.float32(LINE_SIGMA if line is None else line)))

    @property
    def sign(self) -> float:
        """1 where fitness is maximised, -1 where it is minimised."""
        return -1.0 if self.minimize else 1.0

    def offset(self):
        """The archive's offset, maximised."""
        return None if self.qd_offset is None else jnp.float32(self.sign * self.qd_offset)

    def start(self) -> Start:
        return Start(None if self.x0 is None else jnp.asarray(self.x0), jnp.asarray(self.init_sigma, jnp.float32))

    def key(self):
        return jax.random.key(self.seed)[None]

    def box(self):
        return None if self.bounds is None else tuple(jnp.asarray(end) for end in self.bounds)

    def info(self) -> dict[str, Any]:
        """Settings as plain values, for results and files."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["rule"] = values.pop("rule_name")
        values["reproduction"] = None if self.reproduction is None else _name(self.reproduction)
        values["variation"] = self.variation if isinstance(self.variation, str) else _name(self.variation)
        for name in ("iso_sigma", "init_sigma"):
            values[name] = values[name].tolist() if isinstance(values[name], np.ndarray) else values[name]
        for name in ("bounds", "descriptor_bounds"):
            values[name] = None if values[name] is None else [_short(end) for end in values[name]]
        values["x0"] = None if self.x0 is None else self.x0.tolist()
        return values


def _short(end: np.ndarray):
    """One number for an end of a box that is the same in every dimension."""
    return float(end[0]) if (end == end[0]).all() and len(end) > 1 else end.tolist()


def _name(function) -> str:
    return getattr(function, "__name__", type(function).__name__)
