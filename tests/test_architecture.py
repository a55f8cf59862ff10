"""Imports point one way, `import lqd` is light, and nothing unsafe is used."""

import ast
import pathlib
import subprocess
import sys

import lqd

SOURCE = pathlib.Path(lqd.__file__).parent
# From the ground up; a module may import from its own floor and those below.
FLOORS = [
    {"types", "errors", "stats"},
    {"tasks"},
    {"evolution"},
    {"checkpoint", "checks", "manifest", "locking", "workers"},
    {"shipped"},
    {
        "catalogue",
        "result",
        "extras",
        "settings",
        "statefile",
        "keeping",
        "ask_tell",
        "looking",
        "compiled",
        "hosted",
        "api",
    },
    {"integrations"},
    {"meta"},
    {"figures"},
    {"runs", "training", "bench", "show"},
    {"report"},
    {"cli"},
    {"rerun"},
    {"__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room != "__init__":
            yield path, room, ast.parse(path.read_text())


def imported_rooms(body):
    """Rooms that a module imports when it is imported: not inside functions, not for type checkers alone."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lqd":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("lqd."))


def test_every_room_has_a_floor():
    assert {room for _, room, _ in modules()} == set(FLOOR)


def test_imports_point_down():
    for path, room, tree in modules():
        for other in imported_rooms(tree.body):
            assert FLOOR[other] <= FLOOR[room], f"{path.relative_to(SOURCE)} imports {other}, which is above {room}"


def test_importing_lqd_stays_light():
    heavy = ["pandas", "matplotlib", "rich", "tyro", "scipy.spatial", "safetensors", "flax", "bbobax"]
    code = f"import sys, lqd; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_nothing_unsafe_is_called():
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cloudpickle", "yaml", "marshal", "shelve"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path


def test_only_the_manifest_knows_the_time_of_day():
    """A clock that is set back must not end a run, or lengthen it."""
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("time", "time"), ("time", "time_ns")}, path
            if isinstance(node, ast.Import | ast.ImportFrom) and path.name != "manifest.py":
                assert "datetime" not in {alias.name for alias in node.names} | {getattr(node, "module", None)}, path


def test_public_names_exist():
    assert all(hasattr(lqd, name) for name in lqd.__all__)
