"""Files: arrays with a description, in one safetensors file, written atomically and verified when read. No pickle.

Every file has a kind (`rule`, `state`, `result`), a version, a JSON description, and a SHA-256 over names, types,
shapes, bytes and description, so that a truncated, altered or foreign file is refused with a message that names it.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np

from lqd.errors import InvalidInput, Unreadable, Unwritable

VERSION = "1"
PART = ".lqd-part"  # how the name of a file ends while it is being written
PathLike = str | os.PathLike[str]


def write_bytes(path: PathLike, content: bytes) -> pathlib.Path:
    """Writes the whole file or nothing: to a neighbour first, flushed to the disk, then renamed.

    Its mode is as `open` would have it: a new file has what the umask leaves, one that is there keeps its own.
    """
    path = pathlib.Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
        try:
            with open(part, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                os.chmod(part, stat.S_IMODE(path.stat().st_mode))
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unwritable(path, error) from error
    return path


def torn_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """What killed writers left in the folder; files in deeper folders may belong to a process that is still writing."""
    return [*folder.glob(f".*{PART}")]


def _digest(arrays: Mapping[str, np.ndarray], description: str) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def write_arrays(path: PathLike, kind: str, arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]):
    """Arrays and their description as one verified file."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
    text = json.dumps(description, sort_keys=True, allow_nan=True)
    metadata = {"kind": f"lqd-{kind}", "version": VERSION, "description": text, "sha256": _digest(arrays, text)}
    return write_bytes(path, save(arrays, metadata))


def read_arrays(path: PathLike, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write_arrays` wrote; anything else is refused."""
    from safetensors import SafetensorError, safe_open

    path = pathlib.Path(path)
    if not path.is_file():
        raise Unreadable(f"{path}: there is no such file.")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise Unreadable(f"{path}: not a complete safetensors file ({error}).") from error
    if metadata.get("kind") != f"lqd-{kind}":
        raise Unreadable(f"{path}: expected a file of kind 'lqd-{kind}', found {metadata.get('kind')!r}.")
    if metadata.get("version") != VERSION:
        raise Unreadable(f"{path}: written in format {metadata.get('version')!r}; this version reads {VERSION!r}.")
    text = metadata.get("description", "")
    if metadata.get("sha256") != _digest(arrays, text):
        raise Unreadable(f"{path}: the checksum does not match; the file was altered after it was written.")
    return arrays, parsed(text, path)


def parsed(text: str, path: PathLike) -> dict[str, Any]:
    """A JSON object from an untrusted file."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: not readable as JSON ({error}).") from error
    if not isinstance(content, dict):
        raise Unreadable(f"{path}: expected names and values, found a {type(content).__name__}.")
    return content


@contextlib.contextmanager
def understood(path: PathLike):
    """Errors raised inside are reported as the file's: it is complete, but its content does not fit its kind."""
    try:
        yield
    except InvalidInput as error:
        if str(path) in str(error):
            raise
        raise InvalidInput(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Unreadable(f"{path}: its content does not fit its kind ({error!r:.200}).") from error


def flatten(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Nested dictionaries of arrays as one, with names joined by dots."""
    if not isinstance(tree, Mapping):
        return {prefix: np.asarray(tree)}
    flat: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else name)
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from names joined by dots."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree
