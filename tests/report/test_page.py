"""The page in headless Chromium: it loads, sorts, slides, drags, and computes the same scores as the package."""

import browser
import jax.numpy as jnp
import numpy as np
import planted
import pytest

import lqd
from lqd.bench.results import Folder
from lqd.bench.verdicts import verdicts
from lqd.report import page

pytestmark = browser.needed


@pytest.fixture(scope="module")
def window(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    with browser.browser() as window:
        window.open(path.as_uri())
        yield window


def test_it_loads_without_complaints(window):
    assert window.run("return document.querySelectorAll('#verdicts tbody tr').length") == 28
    assert window.complaints() == []


def test_the_three_verdicts_look_different(window, folder):
    """In words and in colour; and the two tests have a column each."""
    heads, seen = window.run("""
        const table = document.getElementById("verdicts"), rows = [...table.tBodies[0].rows];
        const cells = rows.map((row) => row.cells[row.cells.length - 1]);
        const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
        return [heads, cells.map((cell) => [cell.textContent, getComputedStyle(cell).color])];
    """)
    assert heads[-4:] == ["p", "paired p", "effect", "verdict"]
    assert [verdict for verdict, _ in seen] == [row["verdict"] for row in verdicts(Folder(folder))]
    assert {verdict for verdict, _ in seen} == {"holds", "does not hold", "inconclusive"}
    assert len({colour for _, colour in seen}) == len(set(map(tuple, seen))) == 3


def test_a_name_with_html_in_it_is_shown_as_it_is(window):
    cells = window.run("return [...document.querySelectorAll('#results td')].map((cell) => cell.textContent)")
    assert planted.NASTY in cells


def test_tables_sort_by_number_both_ways(window):
    script = """
        const table = document.getElementById("results"), heads = [...table.tHead.rows[0].cells];
        const column = heads.findIndex((head) => head.textContent === "fitness");
        heads[column].click();
        const values = [...table.tBodies[0].rows].map((row) => Number(row.cells[column].textContent));
        return [heads[column].getAttribute("aria-sort"), values];
    """
    for order, sign in (("ascending", 1), ("descending", -1)):
        said, values = window.run(script)
        assert said == order
        assert values == sorted(values, key=lambda value: sign * value)
        assert len(set(values)) > 10


def test_the_filter_narrows(window):
    shown = window.run("""
        const filter = document.getElementById("filter");
        filter.value = "katsuura lqd-fn";
        filter.dispatchEvent(new Event("input"));
        const rows = [...document.querySelectorAll("#results tbody tr")].filter((row) => !row.hidden);
        return rows.map((row) => [row.cells[1].textContent, row.cells[3].textContent]);
    """)
    assert shown
    assert all(row == ["katsuura", "lqd-fn"] for row in shown)


def test_the_slider_moves_through_the_generations(window, folder):
    generations = Folder(folder).landscape("lqd-f")["generation"]
    seen = window.run("""
        const slider = document.getElementById("generation"), label = document.getElementById("generation-label");
        return [...Array(Number(slider.max) + 1).keys()].map((i) => {
          slider.value = i;
          slider.dispatchEvent(new Event("input"));
          return [Number(label.textContent), window.lqd.state.fitness[0]];
        });
    """)
    assert [generation for generation, _ in seen] == generations.tolist()
    assert len({fitness for _, fitness in seen}) == len(generations)


@pytest.mark.parametrize("name", ["lqd-f", "lqd-n", "lqd-fn", "dns", "ns", "ga"])
def test_the_page_computes_the_same_scores(window, name):
    fitness, first, second, scores = window.run(
        """
        document.getElementById("rule").value = arguments[0];
        document.getElementById("rule").dispatchEvent(new Event("change"));
        const state = window.lqd.state;
        const scores = [...state.scores].map((value) => value === Infinity ? 1e30 : value);
        return [state.fitness, state.first, state.second, scores];
        """,
        name,
    )
    rule = lqd.load(name) if name.startswith("lqd") else lqd.rule(name)
    descriptor = jnp.asarray(np.column_stack([first, second]), jnp.float32)
    expected = np.asarray(rule(None, jnp.asarray(fitness, jnp.float32), descriptor))
    np.testing.assert_allclose(scores, np.where(np.isinf(expected), 1e30, expected), rtol=2e-3, atol=2e-3)


def test_dragging_an_individual_changes_the_scores(window):
    window.run("""
        document.getElementById("population").value = "lqd-f";
        document.getElementById("population").dispatchEvent(new Event("change"));
        document.getElementById("map").scrollIntoView({block: "start"});
    """)
    x, y, before = window.run("""
        const box = document.getElementById("map").getBoundingClientRect(), state = window.lqd.state;
        const x = box.left + (state.first[0] / state.end + 1) / 2 * box.width;
        const y = box.top + (1 - state.second[0] / state.end) / 2 * box.height;
        return [Math.round(x), Math.round(y), [...state.scores]];
    """)
    window.drag((x, y), (x + 60, y + 40))
    moved, after, text = window.run("""
        const state = window.lqd.state;
        return [state.selected, [...state.scores], document.getElementById("selected").textContent];
    """)
    assert moved is not None
    assert f"individual {moved + 1}" in text
    assert np.abs(np.subtract(after, before)).max() > 1e-3
    window.run("document.getElementById('reset').click()")
    again = window.run("return [...window.lqd.state.scores]")
    np.testing.assert_array_equal(again, before)
    assert window.complaints() == []


def test_without_landscapes_nothing_leads_there(window, tmp_path):
    folder = planted.write(tmp_path / "bench", {}, suite="robots")
    for path in (folder / "landscape").iterdir():
        path.unlink()
    window.open(page.write(folder).as_uri())
    shown = "return [...document.querySelectorAll('nav a')].filter((one) => one.offsetWidth > 0).map((one) => one.hash)"
    assert window.run(shown) == ["#claims", "#figures", "#numbers"]
    assert window.complaints() == []
