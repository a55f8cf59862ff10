"""One process to a folder."""

import subprocess
import sys

import filelock
import pytest

from lqd.errors import InvalidInput
from lqd.io.lock import locked

HOLD = """
import pathlib, sys, time
from lqd.io.lock import locked
with locked(pathlib.Path(sys.argv[1]), "--out"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_in_use_is_refused_until_its_holder_is_gone_however_it_goes(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(InvalidInput, match=r"--out .* is in use by another process"), locked(tmp_path, "--out"):
                pass
        finally:
            holder.kill()
    with locked(tmp_path, "--out"):
        pass


def test_a_folder_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path, "--out"):
        raise ZeroDivisionError
    with locked(tmp_path, "--out"), pytest.raises(InvalidInput, match="in use"), locked(tmp_path, "--out"):
        pass


def test_only_what_was_torn_goes(tmp_path):
    for name in (".state.x.lqd-part", ".mine", "state"):
        (tmp_path / name).write_text("")
    with locked(tmp_path, "--out"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".mine", "state"]


@pytest.mark.parametrize(
    ("error", "message"),
    [(NotImplementedError("no flock"), "a file system without locks"), (PermissionError(13, "Denied"), "Denied")],
)
def test_a_folder_that_cannot_be_locked_says_why(tmp_path, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", fail)
    with pytest.raises(InvalidInput, match=message), locked(tmp_path, "--out"):
        pass
