"""The notebooks run from top to bottom, and hold what they show: outputs of this very code, and small."""

import ast
import base64
import importlib.util
import json
import pathlib
import re

import pandas as pd
import pytest
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
spec = importlib.util.spec_from_file_location("make_outputs", ROOT / "docs" / "make_outputs.py")
make_outputs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_outputs)


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def words(text):
    """Of what is shown: the numbers differ a little from machine to machine."""
    return re.findall(r"[A-Za-z_]{2,}", text)


def kinds_of(cell):
    """What a cell holds of outputs: for each "picture" or its words."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            assert base64.b64decode("".join(data["image/png"])).startswith(b"\x89PNG")
        found.append(
            "picture" if "image/png" in data else words("".join(output.get("text", data.get("text/plain", ""))))
        )
    return found


def kinds_of_value(value):
    """What a notebook would hold of a value."""
    if value is None or isinstance(value, Figure):
        return [] if value is None else ["picture"]
    with pd.option_context("display.max_columns", 20):  # as in notebooks, however wide this terminal is
        return [words(repr(value))]


def run(code, name, names):
    """Runs a cell as a notebook does; returns the value of its last line, which would be shown."""
    lines = [line for line in code.split("\n") if not line.startswith("%")]  # magics are Jupyter's
    tree = ast.parse("\n".join(lines), name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), names)


@pytest.mark.slow
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
    assert [kinds_of(cell) for cell in cells] == [kinds_of_value(value) for value in shown]


def complaints(notebook):
    """What is wrong with the outputs that a notebook holds."""
    found = []
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, mark) in enumerate(zip(cells, make_outputs.marks(notebook), strict=True), 1):
        if cell["execution_count"] != number:
            found.append(f"cell {number} was not run in its turn")
        if cell["metadata"].get("code") != mark:
            found.append(f"cell {number} has outputs of other code")
        if any(output["output_type"] == "error" for output in cell["outputs"]):
            found.append(f"cell {number} failed")
        if re.search(r"(?<![\w.])/(?:tmp|home|root|Users)/", json.dumps(cell["outputs"])):
            found.append(f"cell {number} shows a path of some machine")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_holds_the_outputs_of_its_code(path):
    notebook = json.loads(path.read_text())
    assert complaints(notebook) == [], "run python docs/make_outputs.py"
    shown = [kind for cell in code_cells(path) for kind in kinds_of(cell)]
    assert shown.count("picture") > 0
    assert len(shown) > shown.count("picture")
    assert path.stat().st_size < 300_000


def test_outputs_that_do_not_belong_to_the_code_are_found():
    def changed(change):
        notebook = json.loads(NOTEBOOKS[0].read_text())
        change([cell for cell in notebook["cells"] if cell["cell_type"] == "code"])
        return complaints(notebook)

    num_cells = len(code_cells(NOTEBOOKS[0]))
    stream = {"output_type": "stream", "name": "stdout", "text": ["/home/someone/x.py"]}
    assert changed(lambda cells: cells[-1]["source"].append(" ")) == [f"cell {num_cells} has outputs of other code"]
    assert len(changed(lambda cells: cells[0]["source"].append(" "))) == num_cells
    assert changed(lambda cells: cells[1].update(execution_count=None)) == ["cell 2 was not run in its turn"]
    assert changed(lambda cells: cells[1]["outputs"].append({"output_type": "error"})) == ["cell 2 failed"]
    assert changed(lambda cells: cells[1]["outputs"].append(stream)) == ["cell 2 shows a path of some machine"]
