"""A population of anything: programs, prompts, designs. You vary and evaluate, the pool decides who stays.

`AskTell` searches vectors of numbers. A pool does not look at what it holds: each member has an item, which can be any
object, a fitness and a descriptor, and a competition rule goes by the last two. There are no steps and no batches; a
member can be added whenever its evaluation comes back, also from several threads.
"""

import dataclasses
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lqd import checks, interrupts
from lqd.errors import InvalidInput, Unreadable, shown
from lqd.evolution.contest import Contest
from lqd.io import files
from lqd.rules import catalogue
from lqd.search import defaults

KIND = "pool"
EDGES = ("edge", "free")


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """One member of a pool. `number` counts what was added, from 0."""

    item: Any
    fitness: float
    descriptor: np.ndarray
    number: int


class Pool:
    """At most `capacity` members; when more come, a competition rule decides who stays."""

    def __init__(
        self,
        capacity: int,
        *,
        rule=defaults.RULE,
        descriptor_bounds=None,
        outside: str = "edge",
        minimize: bool = False,
        seed: int = 0,
    ):
        """Creates an empty pool.

        Args:
            capacity: How many members stay.
            rule: A name (`lqd rules`), a rule, a file of weights, or a function `(key, fitness, descriptor) -> scores`.
            descriptor_bounds: `(low, high)`, the range of descriptors that matters. Without it, distances are relative
                to the spread of the members.
            outside: A descriptor outside the bounds counts as at the `"edge"`; `"free"`: as it is.
            minimize: Whether lower fitness is better.
            seed: Of the random numbers that `sample` uses, and the rule if it uses any.
        """
        self._capacity, self._given = checks.size("capacity", capacity), rule
        self._box = None if descriptor_bounds is None else checks.box("descriptor_bounds", descriptor_bounds, None)
        self._outside = checks.one_of("outside", outside, EDGES)
        self._minimize, self._seed = checks.flag("minimize", minimize), checks.seed(seed)
        catalogue.resolve(rule, population_size=self._capacity, descriptor_bounds=self._box)
        self._descriptor_dim: int | None = None  # until the first descriptor
        self._contest: Contest | None = None
        self._rng = np.random.default_rng(self._seed)
        self._members: list[Member] = []
        self._best: Member | None = None
        self._num_added = self._num_failed = 0
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """For copies: a lock cannot be copied, and theirs is their own."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    # Reading

    @property
    def capacity(self) -> int:
        """How many members stay."""
        return self._capacity

    @property
    def members(self) -> list[Member]:
        """All members, the fittest first."""
        with self._lock:
            return sorted(self._members, key=lambda member: (-self._worth(member), member.number))

    @property
    def best(self) -> Member | None:
        """The fittest ever added, whether or not it stayed; None before the first."""
        return self._best

    @property
    def num_added(self) -> int:
        """How many were added so far, including those that did not stay."""
        return self._num_added

    @property
    def num_failed(self) -> int:
        """How many of them had no usable fitness or descriptor (NaN)."""
        return self._num_failed

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __repr__(self) -> str:
        best = "empty" if self._best is None else f"best {self._best.fitness:.6g}"
        return f"Pool({len(self)} of {self._capacity} members, {self._num_added} added, {best})"

    def sample(self, num: int = 1) -> list[Member]:
        """Draws parents, all members being equally likely, and none twice unless there are fewer than `num`."""
        num = checks.whole("num", num, 1)
        with self._lock:
            if not self._members:
                raise InvalidInput("sample: the pool is empty; add some items first.")
            chosen = self._rng.choice(len(self._members), size=num, replace=num > len(self._members))
            return [self._members[i] for i in chosen]

    # Writing

    def add(self, item: Any, fitness: float | None, descriptor: Sequence[float]) -> bool:
        """One more; returns whether it stays.

        Give None or NaN as the fitness of one whose evaluation failed, and `-inf` (when minimizing, `inf`) for one that
        is infeasible: neither stays.
        """
        value = math.nan if fitness is None else fitness
        if np.ndim(value) or np.ndim(descriptor) != 1:
            raise InvalidInput(
                f"add: fitness must be a number and descriptor a list of numbers, got shapes {np.shape(value)} and "
                f"{np.shape(descriptor)}; for several items there is add_many."
            )
        return self.add_many([item], [value], [descriptor])[0]

    def add_many(self, items: Sequence[Any], fitness: Sequence[float], descriptor) -> list[bool]:
        """Several at once, which compete with the members and with each other; returns for each whether it stays."""
        items = list(items)
        if not items:
            return []
        with interrupts.waiting(), self._lock:
            return self._add_many(items, *self._checked(len(items), fitness, descriptor))

    def _checked(self, num: int, fitness, descriptor) -> tuple[np.ndarray, np.ndarray]:
        fitness, descriptor, _ = checks.evaluation((fitness, descriptor), num, self._descriptor_dim, "add")
        worth = checks.float32(self._sign * fitness.astype(np.float64))
        if (infinite := np.flatnonzero(worth == np.inf)).size:
            best, worst = ("-inf", "+inf") if self._minimize else ("+inf", "-inf")
            raise InvalidInput(
                f"add: fitness is {best}, or beyond single precision, for item {infinite[0]}; nothing can be "
                f"infinitely good. Cap the value, or give {worst} to what is infeasible."
            )
        return fitness.astype(np.float64), descriptor.astype(np.float64)

    def _add_many(self, items: list[Any], fitness: np.ndarray, descriptor: np.ndarray) -> list[bool]:
        contest = self._begin(descriptor.shape[1]) if self._contest is None else self._contest
        new = [
            Member(item, float(value), _own(place), self._num_added + i)
            for i, (item, value, place) in enumerate(zip(items, fitness, descriptor, strict=True))
        ]
        self._num_added += len(new)
        worth = checks.float32(self._sign * fitness)  # in which rules compute
        infeasible = worth == -np.inf
        failed = ~infeasible & (np.isnan(worth) | ~np.isfinite(checks.float32(descriptor)).all(axis=1))
        self._num_failed += int(failed.sum())
        joining = [one for one, is_out in zip(new, infeasible | failed, strict=True) if not is_out]
        if not joining:
            return [False] * len(new)
        everybody = [*self._members, *joining]
        values = np.array([self._worth(one) for one in everybody])
        places = np.array([one.descriptor for one in everybody])
        self._members = [everybody[i] for i in contest.hold(values, places, len(joining)).stay]
        fittest = max(joining, key=self._worth)
        if self._best is None or self._worth(fittest) > self._worth(self._best):
            self._best = fittest
        stayed = {one.number for one in self._members}
        return [one.number in stayed for one in new]

    @property
    def _sign(self) -> float:
        return -1.0 if self._minimize else 1.0

    def _worth(self, member: Member) -> float:
        """Its fitness, maximised."""
        return self._sign * member.fitness

    def _begin(self, descriptor_dim: int) -> Contest:
        """The competition, once it is known how long a descriptor is."""
        box = self._box
        if box is not None and len(box[0]) == 1:
            box = np.repeat(box[0], descriptor_dim), np.repeat(box[1], descriptor_dim)
        if box is not None and len(box[0]) != descriptor_dim:
            raise InvalidInput(f"descriptor_bounds have {len(box[0])} dimensions, the descriptors {descriptor_dim}.")
        contest = Contest(self._given, self._capacity, descriptor_dim, box, self._outside, self._seed, by_spread=True)
        self._descriptor_dim, self._contest = descriptor_dim, contest
        return contest

    # Files

    def save(self, path: files.PathLike, encode: Callable[[Any], Any] = lambda item: item):
        """Everything needed to go on, in one file. What `encode` makes of an item must be JSON: text, numbers, lists,
        dictionaries with names as keys."""
        with interrupts.waiting(), self._lock:
            held = [*self._members, *([] if self._best is None else [self._best])]
            arrays, rule = catalogue.encode(self._given)
            description = {
                "settings": {
                    "capacity": self._capacity,
                    "descriptor_bounds": None if self._box is None else [end.tolist() for end in self._box],
                    "outside": self._outside,
                    "minimize": self._minimize,
                    "seed": self._seed,
                },
                "rule": rule,
                "items": [_json(encode(one.item)) for one in held],
                "has_best": self._best is not None,
                "descriptor_dim": self._descriptor_dim,
                "num_added": self._num_added,
                "num_failed": self._num_failed,
                "num_competitions": 0 if self._contest is None else self._contest.num_held,
                "random": self._rng.bit_generator.state,
            }
            arrays = {f"rule.{name}": value for name, value in arrays.items()} | {
                "fitness": np.array([one.fitness for one in held], np.float64),
                "descriptor": np.array([one.descriptor for one in held], np.float64).reshape(
                    len(held), self._descriptor_dim or 0
                ),
                "number": np.array([one.number for one in held], np.int64),
            }
            return files.write_arrays(path, KIND, arrays, description)

    @classmethod
    def load(cls, path: files.PathLike, *, decode: Callable[[Any], Any] = lambda item: item, rule=None) -> "Pool":
        """Goes on where `save` left off. A rule that is your own has to be given again."""
        arrays, description = files.read_arrays(path, KIND)
        with files.understood(path):
            kept = {name.removeprefix("rule."): value for name, value in arrays.items() if name.startswith("rule.")}
            rule = catalogue.decode(description["rule"], kept) if rule is None else rule
            if rule is None:
                name = description["rule"]["class"]
                raise InvalidInput(f"{path}: the pool has a rule of its own ({name}): give rule=.")
            settings = dict(description["settings"])
            if (bounds := settings["descriptor_bounds"]) is not None:
                settings["descriptor_bounds"] = tuple(np.asarray(end, np.float32) for end in bounds)
            pool = cls(**settings, rule=rule)
            held = pool._restore(arrays, description)
        held = [dataclasses.replace(one, item=decode(one.item)) for one in held]
        pool._best = held.pop() if description["has_best"] else None
        pool._members = held
        return pool

    def _restore(self, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> list[Member]:
        """The counters and random numbers of a file; returns its members, with the best ever after them."""
        names = ("num_added", "num_failed", "num_competitions")
        self._num_added, self._num_failed, num_held = (checks.whole(name, description[name], 0) for name in names)
        fitness, descriptor, number = (arrays[name] for name in ("fitness", "descriptor", "number"))
        items, num = description["items"], len(fitness)
        has_best = checks.flag("has_best", description["has_best"])
        if not (len(items) == num == len(number) and descriptor.ndim == 2 and len(descriptor) == num):
            raise Unreadable(f"its {len(items)} items do not fit its arrays")
        if num - has_best > self._capacity or not (np.isfinite(fitness).all() and np.isfinite(descriptor).all()):
            raise Unreadable("more members than its capacity, or values that no member has")
        self._rng.bit_generator.state = description["random"]
        if description["descriptor_dim"] is not None:
            self._begin(checks.whole("descriptor_dim", description["descriptor_dim"], 1)).num_held = num_held
        parts = zip(items, fitness.tolist(), descriptor, number.tolist(), strict=True)
        return [Member(item, value, _own(place), count) for item, value, place, count in parts]


def _own(descriptor: np.ndarray) -> np.ndarray:
    """A copy that nobody changes: the next competition goes by it."""
    copied = descriptor.copy()
    copied.setflags(write=False)
    return copied


def _json(item: Any) -> Any:
    try:
        json.dumps(item)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"save: an item cannot be written as JSON ({error}): {shown(item)}. Give encode=, a function that makes "
            f"text, numbers, lists or dictionaries of an item, and to load the opposite, decode=."
        ) from error
    return item
