"""`lqd figure`: which figures there are of a bench, making them, and saving them as files.

A figure is made once, and then saved and shown as often as needed: the page takes the same ones.
"""

import pathlib

from matplotlib.figure import Figure

from lqd.bench.results import Folder
from lqd.errors import InvalidInput, unknown
from lqd.io.files import write_bytes
from lqd.report import bench_figures, landscape_figures, style

NAMES = (*bench_figures.FIGURES, "animation", "all")
Picture = Figure | bytes  # bytes are a GIF: the animation


def draw(
    name: str, results: pathlib.Path, out: pathlib.Path | None = None, width: style.Width = style.FULL
) -> list[pathlib.Path]:
    """A figure (PNG and PDF, the animation as GIF) or all that the results allow; returns the files."""
    if name not in NAMES:
        raise unknown("figure", name, [*NAMES, "training"])
    folder = Folder(results)
    if name != "all":
        return save(_file(name, width), make(name, folder, width), folder, out)
    if out is not None:
        raise InvalidInput("out is for one figure; all figures go to the folder's own `figures`.")
    return save_all({_file(one, width): picture for one, picture in make_all(folder, width).items()}, folder)


def _file(name: str, width: style.Width) -> str:
    """Figures of both widths lie side by side."""
    return f"{name}-column" if width.is_column else name


def make(name: str, folder: Folder, width: style.Width = style.FULL) -> Picture:
    """One figure; results that it needs and that are not there are an error that says what to run."""
    if name == "animation":
        return landscape_figures.animation(folder, width)
    return bench_figures.FIGURES[name](folder, width)


def make_all(folder: Folder, width: style.Width = style.FULL) -> dict[str, Picture]:
    """Every figure whose results are there, by name."""
    found: dict[str, Picture] = {}
    for name in bench_figures.FIGURES:
        try:
            found[name] = make(name, folder, width)
        except InvalidInput:
            continue
    if (folder.path / "landscape" / "lqd-f.safetensors").exists():
        found["animation"] = make("animation", folder, width)
    return found


def save(name: str, picture: Picture, folder: Folder, out: pathlib.Path | None = None) -> list[pathlib.Path]:
    """To the file that is given, or to the folder's own `figures`; returns the files."""
    if isinstance(picture, bytes):
        path = out or folder.path / "figures" / f"{name}.gif"
        write_bytes(path, picture)
        return [path]
    if out is not None and pathlib.Path(out).suffix not in (".png", ".pdf", ".svg"):
        raise InvalidInput(f"out must end in .png, .pdf or .svg, got {str(out)!r}.")
    paths = [out] if out is not None else [folder.path / "figures" / f"{name}.{kind}" for kind in ("png", "pdf")]
    for path in paths:
        style.save(picture, path)
    return paths


def save_all(pictures: dict[str, Picture], folder: Folder) -> list[pathlib.Path]:
    return [path for name, picture in pictures.items() for path in save(name, picture, folder)]
