"""The trained rules in the box: they load offline, say where they come from, and are refused when altered."""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.errors import InvalidInput, Unreadable
from lqd.io import manifest
from lqd.rules import catalogue, trained

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("name", trained.NAMES)
def test_every_rule_has_weights_and_a_card(name):
    card = lqd.card(name)
    rule = lqd.load(name)
    assert card["name"] == name
    assert rule.architecture.recipe == card["feature_recipe"]
    assert all(np.isfinite(leaf).all() for leaf in _leaves(rule.params))
    for field in ("recipe", "num_meta_generations", "sessions", "validation", "validation_curve", "limits", "config"):
        assert card[field] is not None, field
    for session in card["sessions"]:
        assert session["devices"]
        assert session["versions"]["jax"]


@pytest.mark.parametrize("commit", [None, "abc", "abc+"])
def test_a_manifest_explains_its_mark(monkeypatch, commit):
    monkeypatch.setattr(manifest, "commit", lambda: commit)
    found = manifest.environment()
    assert found["commit"] == commit
    assert found.get("commit_note") == (manifest.UNCOMMITTED if commit == "abc+" else None)


def test_the_mark_of_uncommitted_changes_is_explained():
    """In the card of each rule that carries it, and in the docs, which name these rules."""
    docs = (ROOT / "docs" / "weights.md").read_text()
    (line,) = (line for line in docs.splitlines() if line.startswith("A `+` after a commit"))
    for name in trained.NAMES:
        card = lqd.card(name)
        is_marked = any(session["commit"].endswith("+") for session in card["sessions"])
        assert (card.get("commit_note") == manifest.UNCOMMITTED) == is_marked
        assert (f"`{name}`" in line) == is_marked
    readme = (ROOT / "results" / "README.md").read_text()
    (line,) = (part for part in readme.split("\n\n") if part.startswith("A `+` after a commit"))
    for folder in (ROOT / "results").iterdir():
        if folder.is_dir():
            is_marked = any('+"' in path.read_text() for path in folder.rglob("*.json"))
            assert (f"`{folder.name}`" in line) == is_marked, folder


def _leaves(tree):
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", trained.NAMES)
def test_the_box_holds_what_training_left(name):
    """A copy that somebody forgot to renew would be found here: `python training/ship.py`."""
    renamed = {"lqd-imitates-ns": "imitate-ns", "lqd-imitates-dns": "imitate-dns", "lqd-fn": "lqd-fn-sum"}
    folder = renamed.get(name, name)
    left = ROOT / "training" / folder / "rule.safetensors"
    assert left.read_bytes() == (ROOT / "src/lqd/rules/weights" / f"{name}.safetensors").read_bytes()


@pytest.mark.parametrize("change", ["weights", "card"])
def test_a_file_that_does_not_match_its_card_is_refused(tmp_path, monkeypatch, change):
    shutil.copytree(str(trained.FOLDER), tmp_path / "weights")
    if change == "weights":
        shutil.copyfile(tmp_path / "weights" / "lqd-n.safetensors", tmp_path / "weights" / "lqd-f.safetensors")
    else:
        path = tmp_path / "weights" / "lqd-f.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "0" * 64}))
    monkeypatch.setattr(trained, "FOLDER", tmp_path / "weights")
    trained._card.cache_clear()
    try:
        with pytest.raises(Unreadable, match=r"SHA-256.*Reinstall lqd"):
            lqd.load("lqd-f")
    finally:
        trained._card.cache_clear()


def test_a_folder_of_the_same_name_does_not_hide_a_rule(tmp_path, monkeypatch):
    (tmp_path / "lqd-f").mkdir()
    monkeypatch.chdir(tmp_path)
    assert lqd.load("lqd-f").architecture.recipe == 2


def test_a_name_that_is_not_there_lists_those_that_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"lqd-ff.*lqd-f"):
        lqd.rule("lqd-ff")
    with pytest.raises(InvalidInput, match=r"trained rule.*'dns'"):
        lqd.card("dns")


@pytest.mark.parametrize("num_descriptors", [1, 3, 8])
@pytest.mark.parametrize("name", ["lqd-f", "lqd-n", "lqd-fn"])
def test_a_trained_rule_takes_any_number_of_descriptors(name, num_descriptors):
    def evaluate(x):
        return -(x**2).sum(-1), x[..., :num_descriptors]

    found = lqd.optimize(
        evaluate, dim=8, bounds=(-1, 1), rule=name, population_size=16, batch_size=8, num_evaluations=160, seed=0
    )
    assert len(found.population) == 16
    assert np.isfinite(found.population.fitness).all()


def test_a_saved_search_keeps_the_weights_and_not_the_name(tmp_path, monkeypatch):
    """Another version may ship other weights under the same name; a search goes on with its own."""

    def advance(search):
        x = search.ask()
        search.tell(x, fitness=-(x**2).sum(axis=1), descriptor=x[:, :2])
        return x

    search = lqd.AskTell(dim=3, bounds=(-1, 1), rule="lqd-f", population_size=8, batch_size=8, seed=0)
    for _ in range(3):
        advance(search)
    path = tmp_path / "search.safetensors"
    search.save(path)
    other = trained.rule("lqd-n")
    monkeypatch.setattr(trained, "rule", lambda name: other)
    monkeypatch.setattr(catalogue, "rule", lambda name: other)
    again = lqd.AskTell.load(path)
    for _ in range(3):
        np.testing.assert_array_equal(advance(again), advance(search))


def test_rules_can_be_loaded_and_looked_up_while_something_is_traced():
    @jax.jit
    def traced(x):
        rule = catalogue.resolve(lqd.load("lqd-f"))
        scaled = jax.tree.map(lambda leaf: leaf * x, rule)
        return catalogue.resolve(scaled).params["embed"]["weight"].sum()

    assert np.isfinite(traced(jnp.float32(2)))
