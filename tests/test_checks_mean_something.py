"""`make check` finds what it is there to find: mistakes planted in a file, under the settings of pyproject.toml."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

SETTINGS = pathlib.Path(__file__).parents[1] / "pyproject.toml"
MISTAKES = """
def undefined():
    return undefined_name


def mixed():
    return 1 + ""
"""
SHAPES = """
from jaxtyping import Array, Float


def fine(x: Float[Array, " n"], y: Float[Array, "n m"]) -> Float[Array, " n"]:
    return x @ y
"""


def said_by(tool, *arguments, of, where):
    """What the tool says of this code, line by line. It must say something."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    (where / "planted.py").write_text(of.lstrip())
    command = [sys.executable, "-m", tool, *arguments, "planted.py"]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("planted.py:")]


def test_ruff_finds_names_that_are_not_defined(tmp_path):
    """And takes the shapes in annotations for what they are."""
    arguments = ("check", "--config", str(SETTINGS), "--output-format", "concise")
    (line,) = said_by("ruff", *arguments, of=SHAPES + "\n" + MISTAKES, where=tmp_path)
    assert "F821 Undefined name `undefined_name`" in line


def test_mypy_looks_into_functions_without_annotations(tmp_path):
    lines = said_by("mypy", "--config-file", str(SETTINGS), of=MISTAKES, where=tmp_path)
    codes = [line.rpartition("  ")[2] for line in lines if ": error: " in line]
    assert codes == ["[name-defined]", "[operator]"], lines
