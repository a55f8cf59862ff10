"""Headless Chromium through its driver, as far as the tests of a page need it (the W3C WebDriver protocol)."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--window-size=1280,1000",
)  # fmt: skip


def _binary(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


CHROMIUM, DRIVER = _binary("chromium", "chromium-browser", "google-chrome"), _binary("chromedriver")
needed = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")


class Browser:
    """One window."""

    def __init__(self, port: int):
        self._at = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": list(FLAGS)}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        created = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._at += f"/session/{created['sessionId']}"

    def _ask(self, method: str, path: str, content: dict | None = None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._at + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *args):
        """The value of a piece of JavaScript that returns something."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def complaints(self) -> list[str]:
        """What the console has of warnings and errors."""
        return [line["message"] for line in self._ask("POST", "/se/log", {"type": "browser"})]

    def drag(self, begin: tuple[int, int], end: tuple[int, int]) -> None:
        """With the mouse, from one point of the window to another."""
        moves = [
            {"type": "pointerMove", "duration": 0, "x": begin[0], "y": begin[1]},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "duration": 100, "x": end[0], "y": end[1]},
            {"type": "pointerUp", "button": 0},
        ]
        self._ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def press(self, *keys: str) -> None:
        """Real key presses, wherever the focus is."""
        both = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": both}]})

    def touch(self, *places: tuple[int, int]) -> None:
        """A finger from the first place to the last."""
        moves = [{"type": "pointerMove", "duration": 40 * (k > 0), "x": x, "y": y} for k, (x, y) in enumerate(places)]
        finger = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
        pointer = {"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": finger}
        self._ask("POST", "/actions", {"actions": [pointer]})

    def emulate(self, command: str, **params) -> None:
        """A command of Chromium's own protocol, as `emulate("Emulation.setEmulatedMedia", media="print")`."""
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def quit(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def browser():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert DRIVER
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        window = None
        for _ in range(100):
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                window = Browser(port)
                break
            time.sleep(0.1)
        assert window, "chromedriver does not answer"
        yield window
        window.quit()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
