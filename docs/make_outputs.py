"""What the notebooks and two pages of docs show, made by running them: `python docs/make_outputs.py` (two minutes).

Notebooks are executed from top to bottom in a folder of their own and keep their outputs, with pictures reduced to 256
colours so that they stay small. The metadata of each code cell holds a hash of the code up to it: by it a test tells
whether the outputs are those of this code. In the pages, the blocks of output are replaced by what the code above them
prints, and the pictures it saves go to docs/images. Needs nbclient and ipykernel.
"""

import base64
import contextlib
import hashlib
import io
import pathlib
import re
import sys
import tempfile

from PIL import Image

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [ROOT / "docs" / "quickstart.md", ROOT / "docs" / "concepts.md"]
IMAGES = ROOT / "docs" / "images"
SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```output\n(.*?)^```$", re.M | re.S)


def marks(notebook: dict) -> list[str]:
    """For each code cell a hash of the code from the first to this one."""
    so_far, found = hashlib.sha256(), []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            so_far.update("".join(cell["source"]).encode() + b"\0")
            found.append(so_far.hexdigest()[:16])
    return found


def smaller(png: bytes) -> bytes:
    """The same picture with 256 colours."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def executed(path: pathlib.Path) -> str:
    """A notebook with its outputs, as it is to be written."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata.language_info = {"name": "python"}  # which Python it was is of no interest
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, mark in zip(cells, marks(notebook), strict=True):
        cell.metadata = {"code": mark}
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                png = smaller(base64.b64decode(output.data["image/png"]))
                output.data["image/png"] = base64.b64encode(png).decode() + "\n"
    return nbformat.writes(notebook) + "\n"


def with_outputs(page: pathlib.Path) -> str:
    """A page with what its blocks print today."""

    def shown(match):
        code = match[1]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, page.name, "exec"), {"__name__": page.stem})
            for picture in sorted(pathlib.Path(folder).glob("*.png")):
                (IMAGES / f"{page.stem}-{picture.name}").write_bytes(smaller(picture.read_bytes()))
        return f"```python\n{code}```\n\n```output\n{printed.getvalue()}```"

    return SHOWN.sub(shown, page.read_text(encoding="utf-8"))


def main() -> None:
    for page in PAGES:
        page.write_text(with_outputs(page), encoding="utf-8")
    for path in NOTEBOOKS:
        path.write_text(executed(path), encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
