"""The page of `lqd show` in headless Chromium, with two planted movements; what robots do is in tests/tasks."""

import browser
import numpy as np
import planted
import pytest

from lqd.report import robots_page

pytestmark = browser.needed


def movement(num_frames: int, fell: bool) -> dict:
    """A trunk that moves a metre in a second, and a foot below it that touches the ground every second frame."""
    root = np.stack(
        [np.linspace(0, num_frames / 10, num_frames), np.zeros(num_frames), np.full(num_frames, 0.5)], axis=1
    )
    trunk, foot = [[0, 0, -0.2], [0, 0, 0.2]], [[0, 0, -0.45], [0.3, 0, -0.45]]
    touching = np.zeros((num_frames, 2), bool)
    touching[::2, 1] = True
    return {
        "title": f"fitness 1, {planted.NASTY}", "dt": 0.1, "times": list(range(num_frames)), "fell": fell,
        "planar": True, "radius": [0.05, 0.05], "part": [0, 1], "root": robots_page.packed(root),
        "points": robots_page.packed(np.tile(np.asarray([trunk, foot], float), (num_frames, 1, 1, 1))),
        "touching": robots_page.packed(touching),
    }  # fmt: skip


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    path = tmp_path_factory.mktemp("show") / "index.html"
    page = robots_page.page("brax/hopper, <b>bold</b>", [movement(10, True), movement(40, False)], b"")
    path.write_text(page, encoding="utf-8")
    with browser.browser() as window:
        window.open(path.as_uri())
        yield window


def at(window, seconds: float):
    """What is seen then: the clock, the frames, whether the first policy's foot lights up, whether it fell."""
    return window.run(
        """
        const slider = document.getElementById("time");
        slider.value = arguments[0];
        slider.dispatchEvent(new Event("input"));
        const one = policies[0], { width, height } = one.canvas;
        const p = one.canvas.getContext("2d").getImageData(0, 0, width, height).data;
        const orange = p.some((_, i) => i % 4 === 0 && p[i] === 230 && p[i + 1] === 159 && p[i + 2] === 0);
        return [document.getElementById("clock").textContent, policies.map((one) => one.frame), orange, one.isOver];
        """,
        seconds,
    )


def test_it_loads_without_complaints(window):
    assert window.run("return document.querySelectorAll('canvas').length") == 2
    assert window.run("return document.title") == "brax/hopper, <b>bold</b>"
    assert planted.NASTY in window.run("return document.querySelector('h2').textContent")
    assert window.complaints() == []


def test_it_plays(window):
    begin = window.run("return seconds")
    assert any(window.run("return seconds") != begin for _ in range(1000))
    window.run("document.getElementById('play').click()")
    assert window.run("return playing") is False
    stopped = window.run("return seconds")
    assert all(window.run("return seconds") == stopped for _ in range(20))


def test_the_slider_shows_a_time(window):
    assert at(window, 0.0) == ["0.00 s", [0, 0], True, False]
    assert at(window, 0.3) == ["0.30 s", [3, 3], False, False]
    assert at(window, 0.6) == ["0.60 s", [6, 6], True, False]
    assert at(window, 2.0) == ["2.00 s", [9, 20], False, True]  # the first fell after nine steps


def test_dragging_turns_the_view(window):
    look = """
        const one = policies[1], box = one.canvas.getBoundingClientRect();
        return [one.azimuth, one.elevation, Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)];
    """
    azimuth, elevation, x, y = window.run(look)
    window.drag((x, y), (x - 50, y + 30))
    turned, raised, *_ = window.run(look)
    assert turned == pytest.approx(azimuth + 0.5)
    assert raised == pytest.approx(elevation + 0.3)
    assert window.run("return policies[0].azimuth") == azimuth


def test_arrow_keys_turn_the_view(window):
    look = "return [policies[0].azimuth, policies[0].elevation, scrollY]"
    azimuth, elevation, scrolled = window.run(look)
    window.run("policies[0].canvas.focus()")
    window.press(*"\ue014\ue014\ue015")
    assert window.run(look) == [pytest.approx(azimuth - 0.2), pytest.approx(elevation + 0.1), scrolled]
    assert window.run("return document.activeElement.getAttribute('aria-label')").startswith("Policy 1, fitness 1,")


def test_on_a_phone_a_finger_scrolls_and_nothing_is_too_wide(window, emulated):
    emulated("Emulation.setDeviceMetricsOverride", width=420, height=500, deviceScaleFactor=1, mobile=True)
    assert window.run("return document.documentElement.scrollWidth") == 420
    begin, x, y = window.run("""
        policies[0].canvas.scrollIntoView({block: "center"});
        const box = policies[0].canvas.getBoundingClientRect();
        return [scrollY, Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)];
    """)
    window.touch((x, y), (x, y - 60), (x, y - 120))
    assert any(window.run("return scrollY") > begin + 50 for _ in range(200))


def test_dark_and_printed_pages(window, emulated):
    look = (
        "return [getComputedStyle(document.body).backgroundColor, document.querySelector('.controls').offsetHeight > 0]"
    )
    assert window.run(look) == ["rgb(255, 255, 255)", True]
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    emulated("Emulation.setEmulatedMedia", features=dark)
    assert window.run(look) == ["rgb(20, 23, 28)", True]
    emulated("Emulation.setEmulatedMedia", media="print", features=dark)
    assert window.run(look) == ["rgb(255, 255, 255)", False]


def test_numbers_are_for_people():
    assert [robots_page.number(value) for value in (-110.2, 12345.6, 0.4567, 5)] == ["-110", "12,346", "0.457", "5"]
