"""Warns once if descriptors grow without end, where no bounds say what counts."""

import warnings

import numpy as np

from lqd import checks
from lqd.evolution.led import Leader
from lqd.rules.protocol import Rule
from lqd.rules.scaled import HIGHEST, LOWEST, BySpread
from lqd.search.same_task import Answers
from lqd.types import Population


class Growth:
    """Looks at a search whenever its generation has passed a power of two, which costs next to nothing."""

    def __init__(self) -> None:
        self._looked = 0  # digits of the last generation that was looked at
        self._has_warned = False

    def look(self, rule: Rule, population: Population, generation: int, first: Answers | None) -> None:
        """Warns once, if the descriptors of the `first` solutions were tiny compared with those of now.

        Only for a rule that takes its units from the population: others have bounds, or do not use distances.
        """
        rule = rule.rule if isinstance(rule, Leader) else rule
        if self._has_warned or first is None or not isinstance(rule, BySpread):
            return
        digits = generation.bit_length()
        if digits == self._looked:
            return
        self._looked = digits
        before = _spread(first.descriptor, np.isfinite(first.fitness))
        now = _spread(np.asarray(population.descriptor[0]), np.asarray(population.fitness[0]) > -np.inf)
        if warning := checks.grown_descriptors(before, now):
            self._has_warned = True
            warnings.warn(warning, stacklevel=2)


def _spread(descriptor: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The spread in each dimension, between the same quantiles as the rule's units."""
    values = descriptor[present & np.isfinite(descriptor).all(axis=1)].astype(np.float64)
    if not len(values):
        return np.zeros(descriptor.shape[1])
    low, high = np.quantile(values, (LOWEST, HIGHEST), axis=0)
    return high - low
