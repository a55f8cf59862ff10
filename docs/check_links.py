"""Dead links: in the Markdown of the repository as it stands there, and in the built site.

    python docs/check_links.py         # README.md, docs, results, training, ...
    python docs/check_links.py site    # after mkdocs build

Links and images must lead to files that exist, and to anchors in them. Links to other hosts are checked for their form
only: nothing is fetched. In the site, everything that a page loads must come with it.
"""

import html.parser
import json
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ["*.md", "docs/**/*.md", "results/**/*.md", "training/**/*.md", "examples/**/*.md", "notebooks/*.ipynb"]
LINK = re.compile(r"\]\(\s*([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)[^()]*\)")
CODE = re.compile(r"^(```+|~~~+).*?^\1[^\n]*$|(`+)(?!`).+?(?<!`)\2(?!`)", re.M | re.S)
LOADING = {"img", "script", "iframe", "source", "video", "audio", "embed"}


def well_formed(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in ("http", "https"):
        return bool(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+|localhost|127\.0\.0\.1", parts.hostname or ""))
    return parts.scheme in ("mailto", "data", "blob") and bool(parts.path)


def prose(path: pathlib.Path) -> str:
    """A page's Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return text


def anchors(text: str) -> set[str]:
    """Of a page's headings, as GitHub names them."""
    text = re.sub(r"^(```+|~~~+).*?^\1[^\n]*$", "", text, flags=re.M | re.S)
    found: set[str] = set(re.findall(r"""(?:id|name)=["']([^"']+)""", text))
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(next(n for n in (name, *(f"{name}-{i}" for i in range(1, 100))) if n not in found))
    return found


def in_markdown(root: pathlib.Path) -> list[str]:
    """Dead links of the repository's pages, each with the page it stands on."""
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    known = {page: anchors(prose(page)) for page in pages}
    dead = []
    for page in pages:
        for url in LINK.findall(CODE.sub("", prose(page))):
            if re.match(r"[a-z][a-z0-9+.-]*:", url):
                alive = well_formed(url)
            else:
                target, _, anchor = url.partition("#")
                there = (page.parent / urllib.parse.unquote(target)).resolve() if target else page
                alive = there.exists() and (not anchor or anchor in known.get(there, ()))
            if not alive:
                dead.append(f"{page.relative_to(root)}: {url}")
    return dead


class Page(html.parser.HTMLParser):
    """What a page links to and loads, and what in it can be linked to."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[tuple[bool, str]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        loads = tag in LOADING or (tag == "link" and given.get("rel", "") in ("stylesheet", "icon"))
        self.links += [(loads, given[name]) for name in ("href", "src", "poster") if given.get(name)]
        self.links += [(True, part.split()[0]) for part in given.get("srcset", "").split(",") if part.strip()]

    handle_startendtag = handle_starttag


def in_site(site: pathlib.Path) -> list[str]:
    """Dead links of the built site, and what its pages would load from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    dead = set()
    for path, page in pages.items():
        for loads, url in page.links:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme or parts.netloc:
                alive = well_formed(url) and not (loads and parts.scheme != "data")
            else:
                target = urllib.parse.unquote(parts.path)
                folder = site if target.startswith("/") else path.parent  # 404.html links from the root
                there = (folder / target.lstrip("/")).resolve() if target else path
                there = there / "index.html" if there.is_dir() else there
                names = pages[there].names if there in pages else set()
                anchor = urllib.parse.unquote(parts.fragment)
                alive = there.is_file() and (there not in pages or not anchor or anchor in names)
            if not alive:
                dead.add(f"{path.relative_to(site.resolve())}: {url[:120]}")
    return sorted(dead)


def main(args: list[str]) -> int:
    dead = in_site(pathlib.Path(args[0])) if args else in_markdown(ROOT)
    print("\n".join(["Dead links:", *dead]) if dead else "No dead links.")
    return bool(dead)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
