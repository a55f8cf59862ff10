"""One process to a folder.

The system releases a lock when its holder dies, however it dies. Such a lock belongs to an open file, which forked
processes share: they close it at once, so that they neither keep it when the holder is killed nor release it.
"""

import contextlib
import errno
import os
import pathlib
import sys

from lqd.errors import InvalidInput
from lqd.io.files import torn_files

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int, shared: bool) -> None:
        if not shared:  # there are no shared ones
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _let_go(descriptor: int) -> None:
        os.close(descriptor)
else:
    import fcntl

    def _take(descriptor: int, shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def _let_go(descriptor: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


TAKEN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
_held: set[int] = set()  # descriptors of this process


def _forget() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def locked(folder: pathlib.Path, name: str, shared: bool = False):
    """Keeps a second process out; `name` is what the user calls the folder. Torn files in it are removed.

    Holders of a `shared` lock keep out only those that want the folder alone; they leave torn files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except (OSError, ValueError) as error:  # the second: a name with a zero byte in it
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{name} {folder!s:.300} cannot be written to ({reason}).") from error
    _held.add(descriptor)
    try:
        _lock(descriptor, folder, name, shared)
        for torn in () if shared else torn_files(folder):
            with contextlib.suppress(OSError):
                torn.unlink()
        yield
    finally:
        if descriptor in _held:  # or this is a forked process, whose it never was
            _held.remove(descriptor)
            _let_go(descriptor)


def _lock(descriptor: int, folder: pathlib.Path, name: str, shared: bool) -> None:
    try:
        _take(descriptor, shared)
    except OSError as error:
        if error.errno in TAKEN:
            raise InvalidInput(f"{name} {folder} is in use by another process; give another folder.") from None
        raise InvalidInput(
            f"{name} {folder} cannot be locked ({error.strerror}): its file system does not support "
            f"locks; give a folder on another one."
        ) from error
