"""Folders that somebody altered, on purpose or by accident: a right answer or one of our own errors comes out.

Bench folders with damaged, swapped and missing files, and manifests of every kind with strange but well-formed content.
A few of each here; `--long` has 50 folders and 1,500 manifests.
"""

import json
import pathlib
import random
import shutil

import numpy as np
import pandas as pd
import planted
import pytest
from test_fuzz import damaged, strange

from lqd.bench import suites
from lqd.bench.results import Folder
from lqd.bench.verdicts import verdicts
from lqd.cli import main, rerun
from lqd.errors import InvalidInput, Unreadable
from lqd.meta import train
from lqd.report import draw, page, robots_page

ROOT = pathlib.Path(__file__).parents[1]
STRENGTHS = {"lqd-n": 2.0, "lqd-f": 2.0, "lqd-fn": 2.0, "me": 1.5, "dns": 1.0, "ns": 1.0, "ga": 0.2}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return planted.write(tmp_path_factory.mktemp("bench"), STRENGTHS)


@pytest.fixture
def num(request):
    return (lambda fast, long: range(long)) if request.config.getoption("--long") else (lambda fast, long: range(fast))


# Folders of a bench


def altered(rng: random.Random, folder):
    """One file of the folder is gone, damaged, another one, or in another order; says what was done."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path, how = rng.choice(paths), rng.choice(["damage", "damage", "remove", "swap", "empty", "table", "manifest"])
    if how == "remove":
        path.unlink()
    elif how == "swap":
        other = rng.choice(paths)
        path.write_bytes(other.read_bytes())
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "table":
        path = folder / f"{rng.choice(['results', 'history'])}.parquet"
        table(rng, pd.read_parquet(path)).to_parquet(path, index=False)
    elif how == "manifest":
        path = folder / "manifest.json"
        path.write_text(json.dumps(strange(rng, json.loads(path.read_text()))))
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))
    return f"{how}: {path.relative_to(folder)}"


def table(rng: random.Random, frame):
    """The same table with something done to it that leaves it a table."""
    how, column = rng.choice(["drop", "rows", "double", "type", "text", "none"]), rng.choice(list(frame.columns))
    if how == "drop":
        return frame.drop(columns=column)
    if how == "rows":
        return frame.sample(frac=0.9, random_state=rng.randrange(100))
    if how == "double":
        return pd.concat([frame, frame.head(3)])
    if how == "type":
        return frame.assign(**{column: pd.Series([True] * len(frame), index=frame.index)})
    return frame.assign(**{column: "x" if how == "text" else None})


def test_folders(bench, num, tmp_path):
    """What is read of the folder's numbers is what was written, or an error; so it is with the figures."""
    expected = [row["verdict"] for row in verdicts(Folder(bench))]
    num_refused = 0
    for seed in num(5, 50):
        shutil.copytree(bench, tmp_path / "bench")
        what = altered(random.Random(seed), tmp_path / "bench")
        try:
            folder = Folder(tmp_path / "bench")
            found = verdicts(folder)
            if seed % 5 == 0:
                page.page(folder)
            elif folder.parts.keys() == Folder(bench).parts.keys() and not what.startswith("remove"):
                assert [row["verdict"] for row in found] == expected, (seed, what)
        except InvalidInput:
            num_refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}") from error
        shutil.rmtree(tmp_path / "bench")
    assert num_refused


def test_results_in_another_order_are_the_same_results(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "bench")
    before, random_state = Folder(bench), 0
    for name in ("results", "history"):
        path = tmp_path / "bench" / f"{name}.parquet"
        pd.read_parquet(path).sample(frac=1, random_state=random_state).to_parquet(path, index=False)
    after = Folder(tmp_path / "bench")
    for part, rule in (("train", "lqd-f"), ("grid 64", "me"), ("arm", "ga")):
        assert before.columns(part) == after.columns(part)
        for read in (Folder.table, Folder.history):
            one, other = read(before, part, rule), read(after, part, rule)
            assert one.keys() == other.keys()
            for measure in one:
                np.testing.assert_array_equal(one[measure], other[measure])


@pytest.mark.parametrize("change", [lambda f: f.drop(index=f.index[7]), lambda f: pd.concat([f, f.tail(1)])])
def test_results_with_a_row_too_few_or_too_many(bench, tmp_path, change):
    shutil.copytree(bench, tmp_path / "bench")
    for name in ("results", "history"):
        path = tmp_path / "bench" / f"{name}.parquet"
        frame = pd.read_parquet(path)
        frame = frame[(frame["part"] == "arm") & (frame["rule"] == "ga")]
        change(frame).to_parquet(path, index=False)
    folder = Folder(tmp_path / "bench")
    for read in (folder.table, folder.history):
        with pytest.raises(Unreadable, match=r"\.parquet: rule 'ga' in part 'arm' should have .* rows are not those"):
            read("arm", "ga")
    with pytest.raises(InvalidInput, match=r"no results of rule 'me' in part 'arm'"):
        folder.table("arm", "me")


def test_a_flipped_bit_in_the_numbers_is_found(bench, tmp_path):
    """Parquet's own checksums: without them the number would just be another one."""
    import pyarrow.parquet

    shutil.copytree(bench, tmp_path / "bench")
    path = tmp_path / "bench" / "results.parquet"
    about = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    columns = {about.column(i).path_in_schema: about.column(i) for i in range(about.num_columns)}
    content = bytearray(path.read_bytes())
    column = columns["novelty"]
    content[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"results\.parquet: cannot be read"):
        Folder(tmp_path / "bench").table("arm", "ga")


@pytest.mark.parametrize("name", ["{{figures}}", "{{data}}", "{{script}}", "$&", "\\g<0>", "{figures}"])
def test_a_function_by_any_name_is_text_on_the_page(tmp_path, name):
    folder = planted.write(tmp_path, STRENGTHS, suite="pareto", names=("sphere", name))
    text = page.page(Folder(folder), figures={})
    plain = page.page(Folder(planted.write(tmp_path / "plain", STRENGTHS, suite="pareto")), figures={})
    assert text.count("<script") == plain.count("<script")
    assert json.dumps(name)[1:-1].replace("<", "\\u003c") in text


# Manifests


@pytest.fixture(scope="module")
def manifests(bench, tmp_path_factory):
    """A manifest of each kind, in a folder as the command left it, and what reads it."""
    root = tmp_path_factory.mktemp("manifests")
    words = ["--num-evaluations", "64", "--population-size", "16", "--out", str(root / "run"), "--quiet"]
    main(["run", "--task", "arm", "--rule", "ga", *words])
    (root / "train").mkdir()
    shutil.copy(ROOT / "training" / "paper-f" / "card.json", root / "train")
    return {"run": root / "run", "bench": bench, "train": root / "train"}


class Reached(Exception):
    """All checks were passed: from here on it would run."""


def again(path):
    out = path.parents[2] / "again"
    shutil.rmtree(out, ignore_errors=True)
    return rerun.rerun(path, out, quiet=True)


READERS = {
    "run": (again, lambda path: robots_page.write(path.parent)),
    "bench": (again, lambda path: suites.run("robots", "quick", path.parent),
              lambda path: page.page(Folder(path.parent), {}), lambda path: draw.draw("pareto", path.parent)),
    "train": (again,),
}  # fmt: skip


def test_manifests(manifests, num, tmp_path, monkeypatch):
    def reached(*_, **__):
        raise Reached

    for owner, name in ((rerun.run, "_run"), (suites, "measure_all"), (train.trainer, "run")):
        monkeypatch.setattr(owner, name, reached)
    outcomes = {"ran": 0, "refused": 0}
    folders = {kind: shutil.copytree(folder, tmp_path / "there" / kind) for kind, folder in manifests.items()}
    paths = {kind: folders[kind] / ("card.json" if kind == "train" else "manifest.json") for kind in folders}
    texts = {kind: path.read_text() for kind, path in paths.items()}
    for seed in num(60, 1500):
        rng = random.Random(seed)
        kind = sorted(READERS)[seed % 3]
        paths[kind].write_text(json.dumps(strange(rng, json.loads(texts[kind]))))
        read = rng.choice(READERS[kind])
        try:
            read(paths[kind])
            outcomes["ran"] += 1
        except Reached:
            outcomes["ran"] += 1
        except InvalidInput:
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {kind}, {read}") from error
    assert min(outcomes.values()) > 0, outcomes
