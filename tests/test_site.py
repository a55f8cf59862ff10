"""The site of the documentation: a menu that can be taken in, and search that works from disk and over HTTP."""

import contextlib
import functools
import http.server
import json
import pathlib
import threading
import time

import pytest
from browser import browser, needed

ROOT = pathlib.Path(__file__).parents[1]
SITE = ROOT / "site"
FRESH = (SITE / "index.html").exists() and (SITE / "index.html").stat().st_mtime > (ROOT / "mkdocs.yml").stat().st_mtime
built = pytest.mark.skipif(not FRESH, reason="needs the site, built since mkdocs.yml changed: make docs")
WORKER = "addEventListener('message', (event) => postMessage(event.data.map((x) => x * self.factor))); self.factor = 2;"
PAGE = """<body><script src="iframe-worker.js"></script><script>
const worker = new Worker("worker.js"), got = [];
worker.addEventListener("message", (event) => got.push(event.data));
worker.postMessage([1, 2]);
addEventListener("load", () => worker.postMessage([3]));
</script></body>"""
SEARCH = """const box = document.querySelector("[data-md-component=search-query]");
box.focus(); box.value = arguments[0]; box.dispatchEvent(new Event("input", {bubbles: true}));
box.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true})); return true;"""
PAGES = ["quickstart", "claims", "performance", "notebooks/01_first_search", "reference/search"]
WIDTH_IN_A_FRAME = """const frame = document.createElement("iframe");
frame.style.width = "420px"; frame.src = arguments[0];
frame.onload = () => { window.found = frame.contentDocument.documentElement.scrollWidth; };
window.found = null; document.body.replaceChildren(frame); return true;"""
FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.href);"


def sections(entries, title="the menu"):
    yield title, entries
    for entry in entries:
        for name, inside in entry.items():
            if isinstance(inside, list):
                yield from sections(inside, name)


def test_no_section_of_the_menu_has_more_than_seven_entries():
    yaml = pytest.importorskip("yaml")
    found = dict(sections(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(found) > 7
    assert {name: len(entries) for name, entries in found.items() if len(entries) > 7} == {}


@contextlib.contextmanager
def served(folder):
    """Over HTTP, from a thread."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def waited_for(window, script, wanted):
    """What a script returns, once that is as wanted."""
    end = time.monotonic() + 20
    while not wanted(value := window.run(script)) and time.monotonic() < end:
        time.sleep(0.1)
    return value


@needed
def test_a_worker_works_from_disk_and_over_http(tmp_path):
    """And answers what it was told before it had loaded."""
    (tmp_path / "iframe-worker.js").write_text((ROOT / "docs" / "js" / "iframe-worker.js").read_text())
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "page.html").write_text(PAGE)
    with browser() as window, served(tmp_path) as http:
        for where in (f"file://{tmp_path}", http):
            window.open(f"{where}/page.html")
            assert waited_for(window, "return got", lambda got: len(got) == 2) == [[2, 4], [6]]
            assert not [line for line in window.complaints() if "favicon" not in line]


@built
@needed
def test_search_finds_pages_from_disk_and_over_http():
    with browser() as window, served(SITE) as http:
        for where in (f"file://{SITE}", http):
            window.open(f"{where}/howto/function.html")
            window.run(SEARCH, "competition landscapes")
            links = waited_for(window, FOUND, bool)
            assert any(link.startswith(f"{where}/concepts.html") for link in links), json.dumps(links)
            assert window.complaints() == []


@built
@needed
def test_no_page_is_wider_than_a_telephone():
    """Tables, code and pictures scroll or shrink instead."""
    with browser() as window, served(SITE) as http:
        window.open(f"{http}/assets/images/favicon.png")
        widths = {}
        for page in PAGES:
            window.run(WIDTH_IN_A_FRAME, f"{http}/{page}.html")
            widths[page] = waited_for(window, "return window.found", lambda found: found is not None)
        assert all(300 < width <= 420 for width in widths.values()), widths
