"""Functions that processes of a pool can find."""

import os
import pathlib
import sys
import time

import numpy as np

DEADLY = 0.9  # of the first coordinate


def plain(x):
    return -np.sum(x**2, axis=1), x[:, :2], {"pid": np.full(len(x), os.getpid())}


def slow_first(x):
    """Finishes in another order than it was asked for."""
    time.sleep(0.02 * float(x[0, 0] > 0))
    return -np.sum(x**2, axis=1), x[:, :2]


def deadly(x):
    """Kills its process, always at the same solutions."""
    if x[0, 0] > DEADLY:
        os._exit(3)
    return -np.sum(x**2, axis=1), x[:, :2], {"first": x[:, 0]}


def exits(x):
    """Exits, without an error, always at the same solutions."""
    if x[0, 0] > DEADLY:
        sys.exit(0)
    return -np.sum(x**2, axis=1), x[:, :2], {"first": x[:, 0]}


def always_deadly(x):
    os._exit(3)


def raises(x):
    raise ValueError("the simulator has no licence")


def dies_once(x):
    """Kills its process at the first solution of all, the first time."""
    mark = pathlib.Path(os.environ["LQD_TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os._exit(3)
    return -np.sum(x**2, axis=1), x[:, :2]


def odd_extras(x):
    return -np.sum(x**2, axis=1), x[:, :2], {"a" if x[0, 0] > 0 else "b": x[:, 0]}


def says_who(x):
    """Leaves the number of its process, and is in no hurry."""
    (pathlib.Path(os.environ["LQD_TEST_MARK"]) / str(os.getpid())).touch()
    time.sleep(0.5)
    return -np.sum(x**2, axis=1), x[:, :2]
