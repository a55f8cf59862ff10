"""What made a result: settings, versions, machine, commit and timing, as JSON beside it."""

import datetime
import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys
from typing import Any

from lqd.errors import InvalidInput, Unreadable
from lqd.io.files import PathLike, parsed, write_bytes


def _git(*args: str) -> str | None:
    folder = pathlib.Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


UNCOMMITTED = "+: made from this commit with changes that were not committed, and are not recorded"


def commit() -> str | None:
    """Commit of the checkout that lqd runs from, with a `+` if it has changes; None for an installed wheel."""
    if _git("ls-files", "--error-unmatch", __file__) is None:
        return None
    head = _git("rev-parse", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def note(commit: str | None) -> dict[str, str]:
    """What the mark of a commit means, to be written beside it."""
    return {"commit_note": UNCOMMITTED} if commit is not None and commit.endswith("+") else {}


def short(commit: str | None) -> str:
    """For people; with the mark."""
    return commit[:7] + "+" * commit.endswith("+") if commit else "?"


def environment() -> dict[str, Any]:
    """Versions, devices and the width of floats, without anything that names the machine or its user."""
    import jax

    import lqd

    found = commit()
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {
        "versions": {"python": platform.python_version(), "lqd": lqd.__version__} | versions,
        "devices": [device.device_kind for device in jax.devices()],
        "platform": f"{sys.platform}-{platform.machine()}",
        "float_bits": 8 * jax.numpy.result_type(float).itemsize,  # 64 where JAX_ENABLE_X64 is set
        "commit": found,
    } | note(found)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(path: PathLike, content: dict[str, Any]) -> pathlib.Path:
    """As JSON that every reader accepts: numbers that are not finite become strings."""
    text = json.dumps(_plain(content), indent=2, allow_nan=False)
    return write_bytes(path, (text + "\n").encode())


def read(path: pathlib.Path, of: str) -> dict[str, Any]:
    """What `write` wrote; `of` is what the folder should be of."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"{path.parent} has no {path.name}: it is not the folder of {of}.") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: cannot be read ({error}).") from error
    return parsed(text, path)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, pathlib.Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return str(value)
    return value
