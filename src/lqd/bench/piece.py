"""One result in a file, with what it belongs to: read if it is kept, else computed."""

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lqd.errors import Unreadable
from lqd.io import manifest
from lqd.io.files import read_arrays, write_arrays

Arrays = dict[str, np.ndarray]


def read(path: pathlib.Path, about: dict[str, Any]) -> tuple[Arrays, dict[str, Any]] | None:
    """The arrays and how they were made, if the file is there and belongs to just this."""
    try:
        arrays, description = read_arrays(path, "piece")
    except Unreadable:
        return None
    made = description.pop("made", None)
    if not isinstance(made, dict) or not made or description != json.loads(json.dumps(about)):
        return None
    return arrays, made


def write(path: pathlib.Path, about: dict[str, Any], arrays: Arrays, seconds: float) -> dict[str, Any]:
    """Returns how it was made: where, with what, when, and in how many seconds."""
    made = manifest.environment() | {"seconds": round(seconds, 1), "at": manifest.now()}
    write_arrays(path, "piece", arrays, about | {"made": made})
    return made


def kept(path: pathlib.Path, about: dict[str, Any], compute: Callable[[], Arrays]) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and how they were made."""
    if (found := read(path, about)) is not None:
        return found
    begun = time.perf_counter()
    arrays = compute()
    return arrays, write(path, about, arrays, time.perf_counter() - begun)
