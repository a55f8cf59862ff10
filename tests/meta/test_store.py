"""States come back whole or not at all, and a folder belongs to one process at a time."""

import signal

import numpy as np
import pytest

from lqd.errors import InvalidInput, Unreadable
from lqd.io import files
from lqd.meta.store import NUM_KEPT, Saved, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run")


@pytest.fixture
def filled(store, tiny):
    """Three states, after 5, 6 and 7 steps."""
    for number in (5, 6, 7):
        store.save(state(tiny, number))
    return store


def state(config, number):
    arrays = {"strategy.mean": np.arange(3, dtype=np.float32) / number, "strategy.counter": np.int32(number)}
    return Saved(config, 2, number - 2, arrays, {"best_score": 1 / number, "sessions": [{"ended": "today"}]})


def assert_is(saved, config, number):
    expected = state(config, number)
    assert saved.config == config
    assert saved.counter == number
    assert saved.notes == expected.notes
    assert saved.arrays.keys() == expected.arrays.keys()
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(saved.arrays[name], value)
        assert saved.arrays[name].dtype == value.dtype


def test_the_newest_state_comes_back_as_it_was(filled, tiny):
    assert_is(filled.load(), tiny, 7)


def test_the_last_three_are_kept(filled, tiny):
    filled.save(state(tiny, 12))
    assert [path.name for path in filled.paths()] == [f"state-{n:08d}.safetensors" for n in (12, 7, 6)]
    assert NUM_KEPT == 3
    assert len(list(filled.folder.iterdir())) == 3


def test_a_folder_without_states(store):
    assert store.load() is None
    with store.lock():
        assert store.load() is None


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def overwrite_with_text(path):
    path.write_text("not a state")


def overwrite_with_other_kind(path):
    files.write_arrays(path, "validation", {"x": np.zeros(2)}, {})


def overwrite_with_other_description(path):
    files.write_arrays(path, "training", {"x": np.zeros(2)}, {"config": {"stages": []}})


DAMAGES = [truncate, flip, empty, overwrite_with_text, overwrite_with_other_kind, overwrite_with_other_description]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_passed_over_by_name(filled, tiny, damage):
    newest, second, _ = filled.paths()
    damage(newest)
    with pytest.warns(UserWarning, match=f"{newest.name}.*Continuing from the last.*{second.name}") as seen:
        assert_is(filled.load(), tiny, 6)
    assert len(seen) == 1


def test_two_damaged_states_are_both_named(filled, tiny):
    newest, second, third = filled.paths()
    truncate(newest)
    flip(second)
    with pytest.warns(UserWarning, match=f"{newest.name}.*{second.name}.*last good state, .*{third.name}"):
        assert_is(filled.load(), tiny, 5)


def test_no_state_left(filled):
    for path in filled.paths():
        flip(path)
    with pytest.raises(Unreadable, match=r"no state in .* can be read: .*07.*06.*05") as error:
        filled.load()
    assert all(path.name in str(error.value) for path in filled.paths())


def test_a_state_that_cannot_be_written_leaves_the_old_ones(filled, tiny, monkeypatch):
    def no_space(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    before = sorted(filled.folder.iterdir())
    with pytest.raises(InvalidInput, match=rf"{filled.folder}/state-.*: cannot be written .No space left"):
        filled.save(state(tiny, 8))
    assert sorted(filled.folder.iterdir()) == before
    assert_is(filled.load(), tiny, 7)


# --- the lock ---

HOLDER = """
import pathlib, sys, time
from lqd.meta.store import Store
with Store(pathlib.Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_kept_out_until_the_first_one_dies(store, start_python):
    holder = start_python(HOLDER, store.folder)
    try:
        assert holder.stdout.readline() == "held\n", holder.stderr.read()
        with pytest.raises(InvalidInput, match=f"--out {store.folder} is in use by another process"), store.lock():
            pass
    finally:
        holder.kill()
        _, errors = holder.communicate(timeout=60)
    assert (holder.returncode, errors) == (-signal.SIGKILL, "")
    with store.lock():
        (store.folder / "mine").touch()


def test_the_lock_is_free_after_an_error(store):
    with pytest.raises(KeyError), store.lock():
        raise KeyError
    with store.lock(), pytest.raises(InvalidInput, match="in use"), Store(store.folder).lock():
        pass


def test_what_a_killed_writer_left_is_removed(filled, tiny):
    torn = filled.folder / ".state-00000008.safetensors.abc123de.lqd-part"
    torn.write_bytes(b"half of a st")
    other = filled.folder / "notes.txt"
    other.write_text("mine")
    with filled.lock():
        assert not torn.exists()
        assert other.read_text() == "mine"
        assert_is(filled.load(), tiny, 7)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="file/run cannot be written to"), Store(tmp_path / "file" / "run").lock():
        pass
