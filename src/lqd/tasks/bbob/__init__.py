"""BBOB: the 24 functions and 4 further ones, their noise, and instances of them as tasks."""

from lqd.tasks.bbob.functions import NAMES, Point, index, value

__all__ = ["NAMES", "Point", "index", "value"]
