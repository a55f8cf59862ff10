"""One process to a folder."""

import contextlib
import pathlib

from lqd.errors import InvalidInput
from lqd.io.files import torn_files


@contextlib.contextmanager
def locked(folder: pathlib.Path, name: str, below: bool = False):
    """Keeps a second process out; `name` is what the user calls the folder. What was torn there (and `below`) goes.

    The system lets go of the lock when its holder dies, however it dies.
    """
    import filelock

    lock = filelock.FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        raise InvalidInput(f"{name} {folder} is in use by another process; give another folder.") from None
    except NotImplementedError as error:  # what filelock below version 4 raises for it
        raise InvalidInput(f"{name} {folder} is on a file system without locks; give a folder on another.") from error
    except OSError as error:
        raise InvalidInput(f"{name} {folder} cannot be written to ({error.strerror}).") from error
    try:
        for torn in torn_files(folder, below):
            torn.unlink(missing_ok=True)
        yield
    finally:
        lock.release()
