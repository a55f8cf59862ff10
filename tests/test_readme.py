"""The Python in README and docs runs as it stands; the commands exist."""

import contextlib
import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from lqd import cli
from lqd.tasks.brax import leniently

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def words(text):
    """Of what is printed: the numbers differ a little from machine to machine."""
    return re.findall(r"[A-Za-z_]{2,}", text)


def printed_in_docs(code):
    """What a page says that a block prints; None where it does not say."""
    for page in PAGES:
        shown = page.read_text().partition(f"```python\n{code}```\n\n```output\n")[2]
        if shown:
            return shown.partition("```")[0]
    return None


def blocks(language, at_once=lambda page: True):
    """Of other pages than those that are run at once, the blocks are marked as slow."""
    for page in PAGES:
        marks = [] if at_once(page) else [pytest.mark.slow]
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
        for number, (kind, code) in enumerate(fenced):
            if kind == language:
                name = f"{page.name}-{number}{'-with-qdax' if 'qdax' in code else ''}"
                yield pytest.param(code, id=name, marks=marks)


@pytest.mark.parametrize(
    "code", list(blocks("python", lambda page: page.name in ("README.md", "concepts.md", "qdax.md")))
)
def test_python_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with_qdax = "qdax" in code
    if with_qdax and importlib.util.find_spec("qdax") is None:
        pytest.skip("needs QDax: pip install 'lqd[qdax]'")
    if 'if __name__ == "__main__":' in code:
        (tmp_path / "script.py").write_text(code)
        done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return
    with leniently() if with_qdax else contextlib.nullcontext():
        exec(compile(code, "README", "exec"), {"__name__": "readme"})
    shown = printed_in_docs(code)
    if shown is not None:
        assert words(shown) == words(capsys.readouterr().out), "run python docs/make_outputs.py"


def test_the_quick_start_shows_what_its_blocks_print():
    code = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "quickstart.md").read_text(), re.M | re.S)
    assert len(code) == 3
    assert all(words(printed_in_docs(block)) for block in code)


def test_every_block_is_python_or_commands():
    assert not [block.id for language in ("text", "bash", "console", "py", "sh") for block in blocks(language)]


@pytest.mark.parametrize("code", list(blocks("")))
def test_lqd_commands_parse(code):
    for line in code.replace("\\\n", " ").splitlines():
        line = line.removeprefix("srun ")
        if line.startswith("lqd "):
            args = shlex.split(line, comments=True)[1:]
            assert type(cli.parse(args)).__name__.lower() == args[0]


def test_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 200
    assert len(text.split()) <= 1000


def test_make_targets_exist():
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    defined = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"demo", "test"} <= named <= defined
