"""Defaults of a search: its rule, and its sizes by budget."""

from lqd import checks
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE

RULE = "lqd-fn"
VARIATION = None  # "led" where the rule leads it, else "spread"

Sizes = tuple[int, int]  # sizes of the population and of a batch

PAPER: Sizes = (POPULATION_SIZE, BATCH_SIZE)
ASK_TELL: Sizes = (128, 32)  # whose budget is not known
BY_BUDGET: tuple[tuple[float, Sizes], ...] = (  # below this many evaluations
    (10_000, (64, 16)),
    (100_000, (128, 32)),
    (float("inf"), (512, 128)),
)
RATIO = 4  # of one size to the other, where one is given


def sizes(num_evaluations: int) -> Sizes:
    """Sizes of the population and of a batch, for a budget."""
    return next(found for below, found in BY_BUDGET if num_evaluations < below)


def completed(population_size: int | None, batch_size: int | None, usual: Sizes, is_paper: bool) -> Sizes:
    """Both sizes, where one or none was given: the other follows from it, except in the paper's loop."""
    given = {"population_size": population_size, "batch_size": batch_size}
    for name, size in given.items():
        if size is not None:
            checks.size(name, size)
    if is_paper:
        usual = PAPER
    elif population_size is not None:
        usual = (population_size, max(1, population_size // RATIO))
    elif batch_size is not None:
        usual = (min(batch_size * RATIO, checks.LARGEST_SIZE), batch_size)
    return (
        usual[0] if population_size is None else population_size,
        usual[1] if batch_size is None else batch_size,
    )
