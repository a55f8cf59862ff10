"""No dead links: not in what is committed, and what is looked for is found in pages where it was planted.

`make docs` looks through the built site in the same way.
"""

import importlib.util
import json
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("check_links", ROOT / "docs" / "check_links.py")
check_links = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_links)

PAGE = """# A page

[fine](docs/other.md), [fine](docs/other.md#two-words-and-code), [here](#a-page), [out](https://example.org/a_(b))
`[code](no.md)`
![no picture](docs/no.png) [no anchor](docs/other.md#three) [nor here](#three)
[![in a link](no-badge.svg)](docs/other.md)
[no host](https:///a) [what is it](httpx://example.org)

```
[code](no.md)
```
"""
HTML = """<html><head><link rel="stylesheet" href="css/a.css"><link rel="canonical" href="https://example.org/"></head>
<body id="top"><a href="b/c.html#there">fine</a> <a href="b/">its index</a> <a href="#top">fine</a> <a href="https://example.org">fine</a>
<a href="b/c.html#nowhere">no</a> <a href="b/d.html">no</a> <a href="/b/c.html">from the root</a> <img src="e.png">
<script src="https://example.org/f.js"></script><img src="data:image/png;base64,AAAA"></body></html>"""


def test_nothing_links_to_what_is_not_there():
    assert check_links.in_markdown(ROOT) == []


def test_dead_links_in_markdown_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Two words, and `code`\n\n```\n# three\n```\n")
    (tmp_path / "README.md").write_text(PAGE)
    assert check_links.in_markdown(tmp_path) == [
        f"README.md: {url}"
        for url in ("docs/no.png", "docs/other.md#three", "#three", "no-badge.svg", "https:///a", "httpx://example.org")
    ]


def test_links_of_notebooks_count(tmp_path):
    (tmp_path / "notebooks").mkdir()
    cells = [{"cell_type": "markdown", "source": ["[a](no", ".md)"]}, {"cell_type": "code", "source": "[b](c)"}]
    (tmp_path / "notebooks" / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert check_links.in_markdown(tmp_path) == ["notebooks/a.ipynb: no.md"]


def test_dead_links_and_foreign_files_in_the_site_are_found(tmp_path):
    (tmp_path / "css").mkdir()
    (tmp_path / "css" / "a.css").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text("")
    (tmp_path / "b" / "c.html").write_text('<h1 id="there">C</h1>')
    (tmp_path / "a.html").write_text(HTML)
    dead = ("b/c.html#nowhere", "b/d.html", "e.png", "https://example.org/f.js")
    assert check_links.in_site(tmp_path) == [f"a.html: {url}" for url in dead]
