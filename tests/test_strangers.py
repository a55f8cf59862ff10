"""Files that somebody made on purpose: each is refused by name, quickly, and nothing outside its folder is touched."""

import json
import shutil
import struct
import time

import numpy as np
import pytest
import safetensors.numpy

import lqd
from lqd import cli
from lqd.bench import runner, settings, suites
from lqd.cli import rerun
from lqd.errors import InvalidInput, Unreadable
from lqd.io import files
from lqd.meta import store
from lqd.report import page, robots_page

DEEP = "[" * 100_000 + "]" * 100_000
PLACES = ["../../outside", "{root}/outside", "..", "a/../../b", "~/x", "C:\\x", "nul\0l"]

READERS = {
    "rule": lqd.load,
    "result": lqd.Result.load,
    "state": lqd.AskTell.load,
    "training": store.read,
}


def write(path, kind, text, arrays=None):
    """A file with a right checksum, whatever its description says."""
    arrays = arrays or {"x": np.zeros(1, np.float32)}
    about = {"kind": f"lqd-{kind}", "version": files.VERSION, "description": text}
    path.write_bytes(safetensors.numpy.save(arrays, about | {"sha256": files._digest(arrays, text)}))


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("text", [DEEP, '{"a":' * 10_000, "", "{", "[]", "null", "1" * 10_000, "NaN"])
def test_a_description_that_is_none(tmp_path, kind, text):
    path = tmp_path / "file.safetensors"
    write(path, kind, text)
    with pytest.raises(Unreadable, match=r"file\.safetensors"):
        READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("size", [2**20, 2**31, 2**40, 2**63, 2**64 - 1])
def test_a_header_larger_than_the_file_takes_neither_memory_nor_time(tmp_path, kind, size):
    path = tmp_path / "file.safetensors"
    path.write_bytes(struct.pack("<Q", size) + b"{}" * 50)
    begun = time.perf_counter()
    with pytest.raises(Unreadable, match=r"file\.safetensors: not a complete safetensors file"):
        READERS[kind](path)
    assert time.perf_counter() - begun < 1


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("shape", [[2**40], [2**62, 4], [1, 2**31, 2**31]])
def test_an_array_larger_than_the_file_takes_no_memory(tmp_path, kind, shape):
    path = tmp_path / "file.safetensors"
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(Unreadable, match=r"file\.safetensors: not a complete safetensors file"):
        READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_a_link_out_of_the_folder_is_read_like_any_file(tmp_path, kind):
    (tmp_path / "secret").write_text("password")
    path = tmp_path / "file.safetensors"
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(Unreadable) as seen:
        READERS[kind](path)
    assert "password" not in str(seen.value)


MANIFEST_READERS = {
    "rerun": lambda folder: rerun.rerun(folder, folder.parent / "out", quiet=True),
    "show": lambda folder: robots_page.write(folder),
    "report": lambda folder: page.write(folder),
    "bench": lambda folder: suites.run("robots", "quick", folder),
}


@pytest.mark.parametrize("reader", MANIFEST_READERS)
@pytest.mark.parametrize("text", [DEEP, "{", "[]", "null", "1" * 10_000, b"\xff\xfe", '{"config": [], "parts": []}'])
def test_a_manifest_that_is_none(tmp_path, reader, text):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=r"manifest\.json"):
        MANIFEST_READERS[reader](folder)


@pytest.mark.parametrize("place", PLACES)
def test_names_in_a_file_are_no_places(tmp_path, place, monkeypatch):
    """Arrays, extras, tasks, rules and parts may be called anything: nothing is written there."""
    place = place.format(root=tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = tmp_path / "in" / "side"
    inside.mkdir(parents=True)
    arrays = {place: np.zeros((1, 2), np.float32)}
    for kind, reader in READERS.items():
        write(inside / "file.safetensors", kind, json.dumps({"architecture": place, "config": place}), arrays)
        with pytest.raises(Unreadable, match=r"file\.safetensors"):
            reader(inside / "file.safetensors")
    content = {
        "preset": place,
        "num_seeds": None,
        "suites": [place],
        "parts": {place: {"rules": [place], "setting": {}}},
    }
    (inside / "manifest.json").write_text(json.dumps(content | {"config": {"task": place, "seed": 0, "rule": place}}))
    for reader in MANIFEST_READERS.values():
        with pytest.raises(InvalidInput):
            reader(inside)
    search = lqd.AskTell(dim=2, population_size=4, batch_size=4, rule="ga")
    x = search.ask()
    search.tell(x, x[:, 0], x, {place: x[:, 1]})
    for kind, save in (("state", search.save), ("result", search.result().save)):
        save(inside / "file.safetensors")
        READERS[kind](inside / "file.safetensors")
    assert place in lqd.Result.load(inside / "file.safetensors").extras
    assert {path.name for path in tmp_path.rglob("*")} <= {"in", "side", "file.safetensors", "manifest.json"}


def test_a_rule_in_a_manifest_is_read_and_never_run(tmp_path, monkeypatch):
    """The worst that `lqd rerun` of a stranger's manifest does is to read the rule that it names."""
    command = ["run", "--task", "arm", "--rule", "ga", "--num-evaluations", "64", "--population-size", "16"]
    cli.main([*command, "--out", str(tmp_path / "run"), "--quiet"])
    path = tmp_path / "run" / "manifest.json"
    content = json.loads(path.read_text())
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for rule in (str(evil), "evil", "evil:rule"):
        content["config"]["rule"] = rule
        path.write_text(json.dumps(content))
        with pytest.raises(InvalidInput, match=r"rule|safetensors"):
            rerun.rerun(path, tmp_path / "out", quiet=True)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_a_piece_of_strangers_is_made_anew(tmp_path):
    """A piece with a right name and a right checksum, but another content, does not count."""
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=1, population_size=8, batch_size=4)
    for text in (DEEP, "{", "[]", '{"made": 1}', '{"made": {}, "setting": []}', '{"made": {"at": 1}, "setting": {}}'):
        write(tmp_path / "ga.safetensors", "piece", text)
        assert runner.Bench(setting, tmp_path)._read("ga", {}) is None


def with_changed_settings(path, **changed):
    """A state whose description says something else of its sizes, with a right checksum."""
    arrays, description = files.read_arrays(path, "state")
    description["settings"] |= changed
    files.write_arrays(path, "state", arrays, description)


@pytest.mark.parametrize(
    "claimed",
    [
        {"population_size": 2**22},
        {"population_size": 2**40},
        {"archive_cells": 2**22},
        {"dim": 2**30},
        {"batch_size": 2**40},
    ],
)
def test_a_small_state_that_claims_to_be_large(tmp_path, claimed):
    search = lqd.AskTell(dim=2, population_size=4, batch_size=4, rule="ga", archive_cells=8, descriptor_bounds=(-9, 9))
    x = search.ask()
    search.tell(x, x[:, 0], x)
    path = search.save(tmp_path / "state.safetensors")
    lqd.AskTell.load(path)
    with_changed_settings(path, **claimed)
    begun = time.perf_counter()
    with pytest.raises(InvalidInput, match=r"state\.safetensors"):
        lqd.AskTell.load(path)
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("name", ["num_layers", "num_features", "num_hidden", "num_heads", "descriptor_dim"])
@pytest.mark.parametrize("size", [10**6, 10**10, 2**62])
def test_weights_that_claim_to_be_many(tmp_path, name, size):
    path = lqd.save_rule(tmp_path / "rule.safetensors", lqd.rule("lqd-untrained"))
    arrays, description = files.read_arrays(path, "rule")
    description["architecture"][name] = size
    files.write_arrays(path, "rule", arrays, description)
    begun = time.perf_counter()
    with pytest.raises(InvalidInput, match=r"rule\.safetensors"):
        lqd.load(str(path))
    assert time.perf_counter() - begun < 2
