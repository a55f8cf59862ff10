"""One process to a folder."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from lqd.errors import InvalidInput
from lqd.io import lock
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


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit()", "time.sleep(60)"])
def test_forked_workers_do_not_hold_the_lock_and_do_not_let_go_of_it(tmp_path, end):
    """Whether they live on when the holder is killed, or leave the block that it is in."""
    script = HOLD.replace(
        'print("held"',
        f"""readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.write(writable, b"1")  # it runs: what it does at once after a fork is done
        {end}
    os.read(readable, 1)
    if not {"sleep" in end}:
        os.waitpid(child, 0)
    print(child""",
    ).replace("import ", "import os, ", 1)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(InvalidInput, match="in use"), locked(tmp_path, "--out"):
                pass
            os.kill(child, 0)  # there, if only as a process that nobody has waited for, where it has not ended
        except ProcessLookupError:
            assert "sleep" not in end
        finally:
            holder.kill()
            holder.wait()
        try:
            with locked(tmp_path, "--out"):
                pass
        finally:
            if "sleep" in end:
                os.kill(child, signal.SIGKILL)


def test_those_who_share_a_folder_keep_out_who_wants_it_alone(tmp_path):
    refused = pytest.raises(InvalidInput, match="in use")
    one, two = (locked(tmp_path, "--out", shared=True) for _ in range(2))
    with one, two, refused, locked(tmp_path, "--out"):
        pass
    with locked(tmp_path, "--out"), refused, locked(tmp_path, "--out", shared=True):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks_is_said_to_be_that(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.fcntl, "flock", fail)
    message = rf"--out .* cannot be locked \({os.strerror(number)}\): its file system does not support locks"
    with pytest.raises(InvalidInput, match=message), locked(tmp_path, "--out"):
        pass


def test_a_folder_that_cannot_be_written_says_why(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / ".lock").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".lock").symlink_to(tmp_path / "made")
    for name in ("file", "taken", "elsewhere"):
        with pytest.raises(InvalidInput, match="cannot be written to"), locked(tmp_path / name, "--out"):
            pass
    assert not (tmp_path / "made").exists()
