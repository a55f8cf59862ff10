"""Who takes part in a bench: `RULE`, or `RULE+VARIATION`, as `ga+led`; `RULE@random` where descriptors say nothing.

Without a variation, children are made as in the paper. A piece is described by what its variation depends on, so that
one that changes is run again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from lqd.errors import InvalidInput, unknown
from lqd.evolution import led, screening
from lqd.evolution.led import Led
from lqd.evolution.variation import IsoLine, Operator, Spread, Variation
from lqd.rules import catalogue
from lqd.rules.catalogue import FITTED
from lqd.rules.learned.recipe3 import NEUTRAL, STEPS

VARIATIONS = {
    "led": "steps that every individual carries and that a rule may lead",
    "spread": "steps by the spread of the population, children screened: the default of lqd.optimize",
    "paper": "iso-line with the paper's steps",
    "tuned": "iso-line with steps that were chosen for the rule and the task",
}


class Contestant(NamedTuple):
    """The parts of a name; no variation is the paper's."""

    rule: str
    variation: str | None
    descriptors: str


def parse(name: str) -> Contestant:
    """The parts of a name; an unknown variation is refused."""
    rest, _, descriptors = name.partition("@")
    rule, plus, variation = rest.partition("+")
    if plus and variation not in VARIATIONS:
        raise unknown("variation", variation, VARIATIONS)
    return Contestant(rule, variation if plus else None, descriptors)


def check(names: Iterable[str], own: Iterable[str] = ()) -> None:
    """Refuses names of rules that are neither in the catalogue nor among one's own."""
    for name in names:
        rule = parse(name).rule
        if rule not in (*catalogue.RULES, FITTED, *own):
            raise unknown("rule", rule, (*catalogue.RULES, *own))


def operator(
    variation: str, box: tuple[np.ndarray, np.ndarray], tuned: Mapping[str, tuple[float, ...]], rule: str
) -> Operator | Variation:
    """How children are made, where descriptors lie in this box; `tuned` has the chosen steps of some rules."""
    match variation:
        case "led":
            return Led()
        case "spread":
            low, high = (jnp.asarray(end, jnp.float32) for end in box)
            return Spread((low, high))
        case "paper":
            return IsoLine.with_steps()
        case "tuned":
            if rule not in tuned:
                known = ", ".join(tuned) or "no rule"
                raise InvalidInput(f"variation 'tuned': no steps were chosen for rule {rule!r} here, only for {known}.")
            return IsoLine.with_steps(*tuned[rule])
    raise unknown("variation", variation, VARIATIONS)


def described(made: Operator | Variation) -> dict[str, Any]:
    """All that a variation depends on, as plain values."""
    if isinstance(made, Led):
        return {
            "name": "led", "steps": list(STEPS), "start": NEUTRAL.tolist(), "change": led.CHANGE.tolist(),
            "range": led.RANGE.tolist(), "least": led.LEAST, "most": led.MOST,
            "trail": [led.LATEST, led.FARTHEST],
        }  # fmt: skip
    if isinstance(made, Spread):
        box = [] if made.descriptor_bounds is None else [np.asarray(end).tolist() for end in made.descriptor_bounds]
        return {
            "name": "spread", "iso": list(made.ISO), "line": list(made.LINE), "change": made.CHANGE,
            "inherit": made.inherit, "at_edge": made.at_edge, "candidates": screening.TIMES, "box": box,
        }  # fmt: skip
    if isinstance(made, IsoLine):
        return {"name": "iso-line", "steps": [float(made.iso_sigma), float(made.line_sigma)]}
    raise TypeError(f"no description of a {type(made).__name__}")
