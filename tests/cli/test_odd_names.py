"""Names and places that commands do not expect: our own errors, and nothing of a finished run is lost."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

import lqd
from lqd import cli
from lqd.cli import console
from lqd.report import run_figures, style

WEIGHTS = pathlib.Path(lqd.__file__).parent / "rules" / "weights" / "lqd-f.safetensors"
TINY = ["--num-evaluations", "64", "--population-size", "16", "--archive-cells", "4"]
LONG = "x" * 300
ODD = ["a[red]b", "a[/b]", "$x^{$", "$\\frac$", "a b", "-x", "{y}", "%s", "é", os.fsdecode(b"a\xff"), "'\"", "*?"]


@pytest.mark.parametrize("name", ODD)
def test_names_are_text(tmp_path, monkeypatch, name, capsys):
    """On the progress bar, in the table, in the picture and in the files."""
    monkeypatch.chdir(tmp_path)
    cli.say_anything()
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    shutil.copy(WEIGHTS, f"./{name}.safetensors")
    search = lqd.AskTell(dim=2, population_size=4, batch_size=4, rule=f"./{name}.safetensors")
    search.tell(x := search.ask(), x[:, 0], x)
    style.save(run_figures.result(search.result()), tmp_path / name / "picture.png")
    with console.generations_bar(name, 2, quiet=False) as advance:
        advance(2)
    console.table(("name",), [(name,)])
    said = capsys.readouterr().out
    assert said.count(name.encode("utf-8", "backslashreplace").decode()) == 2
    assert (tmp_path / name / "picture.png").is_file()


def test_a_run_with_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"o[/b]$x^\xff")
    pathlib.Path(name).mkdir(parents=True)
    shutil.copy(WEIGHTS, f"{name}$.safetensors")
    cli.main(["run", "--rule", f"{name}$.safetensors", "--out", name, *TINY])
    assert {path.name for path in pathlib.Path(name).iterdir()} >= {"manifest.json", "picture.png"}
    cli.main(["rerun", name, "--quiet"])


COMMANDS = [
    ["run", "--out", LONG, *TINY],
    ["run", "--rule", f"{LONG}.safetensors", *TINY],
    ["rerun", LONG],
    ["report", LONG],
    ["show", LONG],
    ["figure", "pareto", LONG],
    ["figure", "training", LONG],
    ["bench", "--out", LONG],
    ["train", "--out", LONG],
    ["train", "--out", "x", "--init", f"{LONG}.safetensors"],
    ["imitate", "--out", LONG],
    ["demo", "--out", LONG, "--num-evaluations", "64", "--population-size", "16", "--rules", "ga"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:16])
def test_a_name_of_300_characters(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert "name too long" in capsys.readouterr().err


def test_a_rule_given_twice(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", "--rules", "ga", "dns", "ga", "--out", str(tmp_path)])
    assert end.value.code == 2
    assert "--rules: 'ga' is given 2 times" in capsys.readouterr().err


def a_process(tmp_path, *words, **how):
    """The command in a process of its own, where nobody has looked at stdout before."""
    code = "import sys; from lqd.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=300, **how
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [pytest.param(["run", *TINY, "--out", "run"], marks=pytest.mark.slow), ["rules"], ["run", "--help"]]
)
def test_a_full_disk_under_stdout(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = a_process(tmp_path, *words, stdout=full)
    assert done.returncode == 1
    assert done.stderr.strip() == "lqd: the output cannot be written (No space left on device)."
    if "--out" in words:
        assert {path.name for path in (tmp_path / "run").iterdir()} >= {"manifest.json", "picture.png"}


CLOSED = [["rerun", "shut"], ["report", "shut"], ["figure", "training", "shut"]]
CLOSED += [["run", "--out", folder, *TINY] for folder in ("shut/run", "read/only")]


@pytest.mark.parametrize("words", CLOSED)
def test_a_folder_without_permission(tmp_path, monkeypatch, capsys, words):
    if os.getuid() == 0:
        monkeypatch.setattr(os, "stat", refusing(os.stat))
        monkeypatch.setattr(os, "mkdir", refusing(os.mkdir))
        monkeypatch.setattr("io.open", refusing(open))
    for name, mode in (("shut", 0), ("read", stat.S_IRUSR | stat.S_IXUSR)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert "ermission" in capsys.readouterr().err


def refusing(function):
    """For root, who may do anything: what the system says to others."""

    def refuse(path, *args, **kwargs):
        first = pathlib.Path(os.fsdecode(path)).parts[:1] if not isinstance(path, int) else ()
        if first in (("shut",), ("read",)) and os.fsdecode(path) not in ("shut", "read"):
            raise PermissionError(13, "Permission denied", path)
        return function(path, *args, **kwargs)

    return refuse
