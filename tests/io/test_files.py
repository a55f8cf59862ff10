"""Files of weights: round trip, and every kind of damage refused by name."""

import json
import os
import pathlib
import struct

import jax
import numpy as np
import pytest

import lqd
from lqd.io import files, lock
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned


@pytest.fixture(scope="module")
def rule():
    return Learned.init(jax.random.key(3), Architecture(descriptor_dim=3, num_layers=2))


@pytest.fixture
def path(rule, tmp_path):
    return lqd.save_rule(tmp_path / "weights" / "rule.safetensors", rule, {"objective": "fitness"})


def test_round_trip(rule, path):
    loaded = lqd.load(path)
    assert loaded.architecture == rule.architecture
    for ours, theirs in zip(jax.tree.leaves(loaded.params), jax.tree.leaves(rule.params), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert files.read_arrays(path, "rule")[1]["card"] == {"objective": "fitness"}


def test_only_the_file_itself_is_left_behind(path):
    assert [entry.name for entry in path.parent.iterdir()] == ["rule.safetensors"]


def test_a_failed_write_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(lqd.Unwritable, match=f"{path}: cannot be written .disk full"):
        files.write_bytes(path, b"half")
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_files_have_the_mode_that_open_gives(tmp_path, umask):
    before = os.umask(umask)
    try:
        path = files.write_bytes(tmp_path / "new", b"a")
        with open(tmp_path / "plain", "w"):
            pass
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
        path.chmod(0o640)
        assert files.write_bytes(path, b"b").stat().st_mode & 0o777 == 0o640, "one that is there keeps its mode"
        assert path.read_bytes() == b"b"
    finally:
        os.umask(before)


@pytest.mark.parametrize("position", [0.3, 0.6, 0.99])
def test_a_flipped_bit_is_noticed(path, position):
    content = bytearray(path.read_bytes())
    content[int(len(content) * position)] ^= 4
    path.write_bytes(content)
    with pytest.raises(lqd.Unreadable, match=r"rule\.safetensors"):
        lqd.load(path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_truncated_file_is_refused(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(lqd.Unreadable, match=r"rule\.safetensors"):
        lqd.load(path)


def test_a_missing_and_a_foreign_file_are_refused(tmp_path):
    with pytest.raises(lqd.Unreadable, match="no such file"):
        lqd.load(tmp_path / "nothing.safetensors")
    files.write_arrays(tmp_path / "other", "result", {"a": np.zeros(2)}, {})
    with pytest.raises(lqd.Unreadable, match="expected a file of kind 'lqd-rule', found 'lqd-result'"):
        lqd.load(tmp_path / "other")
    header = json.dumps({}).encode()
    (tmp_path / "plain").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(lqd.Unreadable, match="found None"):
        lqd.load(tmp_path / "plain")


def test_arrays_that_do_not_fit_the_architecture_are_refused(rule, tmp_path):
    arrays = files.flatten(rule.params)
    for change in ({"num_layers": 3}, {"recipe": 7}, {"num_features": "many"}):
        architecture = {"descriptor_dim": 3, "num_layers": 2} | change
        files.write_arrays(tmp_path / "odd", "rule", arrays, {"architecture": architecture})
        with pytest.raises(lqd.Unreadable, match="odd"):
            lqd.load(tmp_path / "odd")


def test_a_file_of_weights_is_a_rule_by_its_path(tmp_path):
    path = lqd.save_rule(tmp_path / "rule.safetensors", Learned.init(jax.random.key(0), Architecture(num_layers=1)))
    with pytest.raises(lqd.InvalidInput, match="reads descriptors of 2 dimensions"):
        lqd.optimize(lambda x: (x[:, 0], x), dim=3, bounds=(0, 1), rule=str(path), num_evaluations=500)


def test_only_what_a_killed_writer_of_ours_left_is_removed(tmp_path):
    """A folder may be anybody's: hidden files of the user stay, whatever their names, and so does what lies deeper."""
    kept = [
        ".notes.settings",
        ".state.safetensors.backup00",
        ".x.abcdefgh",
        "deeper/.state.safetensors.abc12345.lqd-part",
    ]
    for name in kept:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    torn = tmp_path / ".state.safetensors.abc12345.lqd-part"
    torn.touch()
    with lock.locked(tmp_path, "--out"):
        assert not torn.exists()
        assert all((tmp_path / name).exists() for name in kept)


def test_a_writer_that_is_killed_leaves_what_is_known_as_torn(path, monkeypatch):
    def killed(*_):
        raise SystemExit

    monkeypatch.setattr("os.replace", killed)
    monkeypatch.setattr(pathlib.Path, "unlink", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        files.write_bytes(path, b"half")
    assert [torn.parent for torn in files.torn_files(path.parent)] == [path.parent]
