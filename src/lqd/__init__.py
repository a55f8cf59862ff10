"""Learned Quality-Diversity: diverse sets of good solutions, by competition rules made by hand or discovered.

    import lqd
    result = lqd.optimize(evaluate, dim=8, bounds=(0, 1), rule="dns", num_evaluations=100_000)

`optimize` and `AskTell` for people with a function, `Pool` for those who evolve programs, prompts or designs, `rule`,
`load` and `card` for competition rules, `train` and `imitate` to discover new ones, `task_family` and `families` for
what to train on, `tasks` for benchmarks.
"""

from lqd import tasks
from lqd.errors import EvaluationFailed, Interrupted, InvalidInput, Unreadable, Unwritable
from lqd.meta import families
from lqd.meta.own_family import task_family
from lqd.meta.train import imitate, train
from lqd.rules.catalogue import rule
from lqd.rules.trained import card, load, save_rule
from lqd.search.ask_tell import AskTell
from lqd.search.optimize import optimize, traceable
from lqd.search.pool import Member, Pool
from lqd.search.progress import Progress
from lqd.search.result import Elites, Result

__version__ = "0.1.0"

__all__ = [
    # search
    "optimize",
    "AskTell",
    "Pool",
    "Member",
    "Progress",
    "Result",
    "Elites",
    "traceable",
    # rules
    "rule",
    "load",
    "card",
    "save_rule",
    # discovering rules
    "train",
    "imitate",
    "task_family",
    "families",
    # tasks
    "tasks",
    # errors
    "InvalidInput",
    "Unreadable",
    "Unwritable",
    "EvaluationFailed",
    "Interrupted",
]  # fmt: skip
