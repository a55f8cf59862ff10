"""A hook of mkdocs: what docs link to elsewhere in the repository becomes pages of the site.

Links are written as they stand in the repository, so they work there too; here they are turned to the pages.
"""

import json
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = re.compile(r"\.(py|ipynb)$")
OUTSIDE = [
    "CHANGELOG.md",
    "results/README.md",
    "results/*/*.md",
    "results/*/long/*.md",
    "training/README.md",
    "examples/*.py",
    "notebooks/*.ipynb",
]
REPORTS = ["results/paper/report.html", "results/robots/report.html"]  # pages of their own, taken as they are


def markdown(path: pathlib.Path) -> str:
    """A file of the repository as a page: scripts as one block, notebooks as their cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{text}```\n"
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        cells.append(("markdown", f"The notebook: `{path.relative_to(ROOT)}`."))
        return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells)
    return text


def on_files(files, config):
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            uri = SOURCE.sub(".md", path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, uri, content=markdown(path)))
    for uri in REPORTS:
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    return files


def on_page_markdown(text, page, config, files):
    """Links relative to the repository become links relative to the site."""
    here = page.file.src_uri if page.file.generated_by else f"docs/{page.file.src_uri}"

    def link(match):
        target, anchor = match[1], match[2] or ""
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        there = SOURCE.sub(".md", there.removeprefix("docs/"))
        return f"]({posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, text)
