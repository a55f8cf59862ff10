"""A hook of mkdocs: what docs link to elsewhere in the repository becomes pages of the site.

Links are written as they stand in the repository, so they work there too; here they are turned to the pages.
"""

import base64
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
        cells = json.loads(text)["cells"]
        parts = [part for number, cell in enumerate(cells) for part in cell_parts(cell, f"{path.stem}-{number}.png")]
        return "\n\n".join([*parts, f"The notebook: `{path.relative_to(ROOT)}`."])
    return text


def cell_parts(cell: dict, picture: str) -> list[str]:
    """A cell of a notebook as Markdown: its text, or its code and what it showed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(f"![What this cell draws]({picture})")
        elif "text/html" in data:
            table = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
            table = re.sub(r'<table border="1" class="dataframe">', "<table>", table)
            parts.append(re.sub(r"\n\s*\n", "\n", table))
        else:
            text = "".join(output.get("text", data.get("text/plain", "")))
            parts.append(f"```output\n{text.rstrip()}\n```")
    return parts


def pictures(path: pathlib.Path):
    """Those that a notebook's cells show, by name."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield f"{path.stem}-{number}.png", base64.b64decode("".join(output["data"]["image/png"]))


def on_files(files, config):
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            uri = SOURCE.sub(".md", path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, uri, content=markdown(path)))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for name, png in pictures(path):
            files.append(File.generated(config, f"notebooks/{name}", content=png))
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


def on_page_content(html, page, config, files):
    """Numbers and names stay in one piece: a narrow table scrolls instead of breaking 2e-17 or lqd-fn in two."""
    html = re.sub(r"(?<!<pre>)<code>([^<>\s]{1,24})</code>", r'<code class="short">\1</code>', html)
    return re.sub(
        r"<(t[dh])((?: style=\"[^\"]*\")?)>((?:<code class=\"short\">)?[^<>\s]{1,24}(?:</code>)?)</\1>",
        r'<\1\2 class="short">\3</\1>',
        html,
    )
