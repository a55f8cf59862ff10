"""The notebooks run from top to bottom, show pictures, and hold no outputs."""

import ast
import json
import pathlib

import pytest
from matplotlib.figure import Figure

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run(code, name, names):
    """Runs a cell as a notebook does; returns the value of its last line, which would be shown."""
    lines = [line for line in code.split("\n") if not line.startswith("%")]  # magics are Jupyter's
    tree = ast.parse("\n".join(lines), name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": path.stem}
    cells = code_cells(path)
    shown = [run("".join(cell["source"]), f"{path.name}, cell {i}", names) for i, cell in enumerate(cells)]
    pictures = [value for value in shown if isinstance(value, Figure)]
    assert pictures
    for picture in pictures:
        picture.savefig(tmp_path / "picture.png", dpi=40)
    assert all(repr(value) for value in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_holds_no_outputs(path):
    for cell in code_cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
