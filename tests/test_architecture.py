"""Imports point one way, module by module, as the tree in docs/contributing.md says; `import lqd` is light; nothing
unsafe is used."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import lqd

SOURCE = pathlib.Path(lqd.__file__).parent
DOCS = pathlib.Path(__file__).parents[1] / "docs"
TREE = re.search(r"^```tree\n(.*?)^```$", (DOCS / "contributing.md").read_text(), flags=re.DOTALL | re.MULTILINE)
LARGEST_FILE = 400  # lines, but for those whose first lines say why they have more
# Late imports, inside functions, that point up: pictures of results offered by earlier rooms.
PICTURES = {
    ("search/result", "report/run_figures"),
    ("meta/train", "report/training_figures"),
    ("meta/train", "report/style"),
}


def listed() -> list[str]:
    """The modules of the tree, from the ground up."""
    return [line.split()[0].removesuffix(".py") for line in TREE[1].splitlines() if line.strip()]


def modules(source: pathlib.Path) -> dict[str, ast.Module]:
    """Every module by its path; an `__init__` that holds nothing but a docstring is a room's label."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path.name != "__init__.py" or len(tree.body) > 1:
            found[str(path.relative_to(source)).removesuffix(".py")] = tree
    return found


def imported(tree: ast.Module, known) -> list[tuple[str, bool]]:
    """Modules that a module imports, and whether late: inside a function."""
    late = {child for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lqd":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "lqd"]
        for name in names:
            path = "/".join(name.split(".")[1:])
            parent = path.rpartition("/")[0]
            places = (path, f"{path}/__init__", parent, f"{parent}/__init__", "__init__")
            target = next((place.lstrip("/") for place in places if place.lstrip("/") in known), None)
            if target is not None:
                found.append((target, node in late))
    return found


def against_the_order(source: pathlib.Path, order: list[str]) -> list[str]:
    """Imports that point up, or round in a circle."""
    place = {name: number for number, name in enumerate(order)}
    found = modules(source)
    return [
        f"{name} imports {other}"
        for name, tree in found.items()
        for other, is_late in imported(tree, found)
        if place[other] >= place[name] and not (is_late and (name, other) in PICTURES)
        and not (is_late and other == "__init__")  # the version
    ]  # fmt: skip


def test_the_tree_shows_every_module_once():
    assert sorted(listed()) == sorted(modules(SOURCE))


def test_imports_point_up_the_page():
    assert against_the_order(SOURCE, listed()) == []


@pytest.mark.parametrize(
    ("module", "planted", "found"),
    [
        ("tasks/arm.py", "from lqd.evolution import loop", "tasks/arm imports evolution/loop"),
        ("rules/cvt.py", "from lqd.rules.handmade import MapElites", "rules/cvt imports rules/handmade"),
        ("io/lock.py", "def late():\n    from lqd.search.result import Result", "io/lock imports search/result"),
        ("types.py", "import lqd.errors", "types imports errors"),
    ],
)
def test_a_planted_import_is_found(tmp_path, module, planted, found):
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text() + (f"\n{planted}\n" if path == SOURCE / module else ""))
    assert against_the_order(tmp_path, listed()) == [found]


def test_rooms_in_the_readme_are_those_of_the_tree():
    rooms = list(dict.fromkeys(name.split("/")[0] for name in listed() if "/" in name))
    text = (DOCS.parent / "README.md").read_text()
    shown = re.findall(
        r"^  (\w+)/ ", re.search(r"^src/lqd/\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)[1], re.MULTILINE
    )
    assert shown == rooms


def test_files_are_short_or_say_why_not():
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text().splitlines()
        assert len(lines) <= LARGEST_FILE or any("400 lines" in line for line in lines[:20]), path


def test_importing_lqd_stays_light():
    heavy = ["pandas", "matplotlib", "rich", "tyro", "scipy.spatial", "safetensors", "flax", "bbobax"]
    code = f"import sys, lqd; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_nothing_unsafe_is_called():
    for path, tree in modules(SOURCE).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cloudpickle", "yaml", "marshal", "shelve"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path


def test_nothing_is_checked_by_assert():
    """It vanishes under `python -O`: what a user or a file may get wrong is checked by an error that stays."""
    found = {
        name: [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        for name, tree in modules(SOURCE).items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_private_part_of_jax_is_used():
    for path, tree in modules(SOURCE).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
                assert not any(name.startswith("jax._src") for name in names), path
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) != "jax.config.values", path


def test_only_the_manifest_knows_the_time_of_day():
    """A clock that is set back must not end a run, or lengthen it."""
    for path, tree in modules(SOURCE).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("time", "time"), ("time", "time_ns")}, path
            if isinstance(node, ast.Import | ast.ImportFrom) and path != "io/manifest":
                assert "datetime" not in {alias.name for alias in node.names} | {getattr(node, "module", None)}, path


def test_public_names_exist():
    assert all(hasattr(lqd, name) for name in lqd.__all__)
