"""The page in headless Chromium: it loads, sorts, slides, drags, and computes the same scores as the package; with the
mouse, by touch and by keyboard, on narrow and dark screens and on paper."""

import re
import time

import browser
import jax.numpy as jnp
import numpy as np
import planted
import pytest

import lqd
from lqd.bench.results import Folder
from lqd.bench.verdicts import counts, verdicts
from lqd.report import page

pytestmark = browser.needed


@pytest.fixture(scope="module")
def window(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    with browser.browser() as window:
        window.open(path.as_uri())
        yield window


def begin(window, population="lqd-f", rule=None):
    """A population as it was evolved, in view, and nobody selected."""
    window.run(
        """
        for (const [id, value] of [["population", arguments[0]], ["rule", arguments[1]]]) {
          document.getElementById(id).value = value;
          document.getElementById(id).dispatchEvent(new Event("change"));
        }
        document.activeElement.blur();
        document.getElementById("reset").click();
        document.getElementById("map").scrollIntoView({block: "center"});
        """,
        population,
        rule or population,
    )
    finished(window)


def place(window, i):
    """Where an individual is in the window."""
    return window.run(
        """
        const box = document.getElementById("map").getBoundingClientRect(), state = window.lqd.state, i = arguments[0];
        const x = box.left + (state.first[i] / state.end + 1) / 2 * box.width;
        return [Math.round(x), Math.round(box.top + (1 - state.second[i] / state.end) / 2 * box.height)];
        """,
        i,
    )


def finished(window):
    """The background when it has been computed: its side, its values, whose it is."""
    for _ in range(400):
        computing, heat = window.run("""
            const { computing, heat } = window.lqd.state;
            return [computing !== null, heat && [heat.n, [...heat.values], heat.rule]];
        """)
        if not computing:
            return heat
        time.sleep(0.02)
    raise AssertionError("the background is never done")


GREY = """
  const map = document.getElementById("map"), copy = new OffscreenCanvas(map.width, map.height);
  const paper = copy.getContext("2d", { willReadFrequently: true });
  paper.drawImage(map, 0, 0);
  const { data } = paper.getImageData(0, 0, map.width, map.height);
  let grey = 0;
  for (let k = 0; k < data.length; k += 4) grey += data[k] === 238 && data[k + 1] === 238 && data[k + 2] === 238;
  grey = grey < 100 ? 0 : grey;
"""  # the ground of a map that has no background yet; the soft edge of a dot may have its colour by chance


def test_it_loads_without_complaints(window):
    assert window.run("return document.querySelectorAll('#verdicts tbody tr').length") == 48
    assert window.complaints() == []


def test_it_begins_with_a_summary(window, folder):
    """How many claims hold, before the first of them, and which these runs are too small to judge."""
    rows = verdicts(Folder(folder))
    said, shares, listed = window.run("""
        const summary = document.querySelector("header #summary");
        const parts = [...summary.querySelectorAll("[data-verdict]")];
        const listed = [...summary.querySelectorAll("li")].map((one) => one.textContent);
        return [summary.querySelector(".counts").textContent, parts.map((part) => Number(part.style.flexGrow)), listed];
    """)
    assert said == counts(rows) + "."
    words = ("holds", "does not hold", "inconclusive")
    assert shares == [sum(row["verdict"] == word for row in rows) for word in words]
    assert listed == [f"{row['claim']} ({row['too_small']})" for row in rows if row["too_small"]]
    assert listed


def test_each_claim_leads_to_its_figure(window):
    links = window.run("""
        return [...document.querySelectorAll("#verdicts a")].map((one) => [one.textContent, one.hash,
          document.querySelector(one.hash)?.querySelector("figcaption").textContent ?? ""]);
    """)
    assert len(links) == 48
    assert all(caption.endswith(f"The paper's {cites}.") for cites, _, caption in links)


def test_numbers_are_for_people(window):
    values = [-110.2, 0.00457, 2.34e-8, 123456, 0, 1.5, None, -12.34]
    shown = window.run("return arguments[0].map(window.lqd.people)", values)
    assert shown == ["-110", "0.00457", "2.3 × 10⁻⁸", "123,456", "0", "1.5", "", "-12.3"]  # noqa: RUF001
    cells = window.run("return [...document.querySelectorAll('td.number')].map((cell) => cell.textContent)")
    assert not [cell for cell in cells if re.search(r"\de[+-]?\d", cell)]


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
        const values = [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.value));
        return [heads[column].getAttribute("aria-sort"), values];
    """
    for order, sign in (("ascending", 1), ("descending", -1)):
        said, values = window.run(script)
        assert said == order
        assert values == sorted(values, key=lambda value: sign * value)
        assert len(set(values)) > 10


def test_p_values_sort_by_size(window):
    """Not by their letters; what has none comes last, either way."""
    script = """
        const table = document.getElementById("verdicts"), heads = [...table.tHead.rows[0].cells];
        heads.find((head) => head.textContent === "p").querySelector("button").click();
        return [...table.tBodies[0].rows].map((row) => row.cells[5].dataset.value ?? null);
    """
    for sign in (1, -1):
        values = window.run(script)
        given = [float(value) for value in values if value is not None]
        assert given == sorted(given, key=lambda value: sign * value)
        assert values[len(given) :] == [None] * (len(values) - len(given))
        assert 10 < len(given) < len(values)


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
    begin(window)
    before = window.run("return [...window.lqd.state.scores]")
    x, y = place(window, 0)
    window.drag((x, y), (x + 60, y + 40))
    assert place(window, 0) == [x + 60, y + 40]
    after, text = window.run("return [[...window.lqd.state.scores], document.getElementById('selected').textContent]")
    assert text.startswith("Individual 1: fitness -")
    assert np.abs(np.subtract(after, before)).max() > 1e-3
    window.run("document.getElementById('reset').click()")
    again = window.run("return [...window.lqd.state.scores]")
    np.testing.assert_array_equal(again, before)
    assert window.complaints() == []


def test_the_picture_is_as_fine_after_a_drag_as_before(window, folder):
    """While the mouse is down and until the new background is done, the old one stays."""
    begin(window)
    side = len(Folder(folder).landscape("lqd-f")["axis"])
    before = finished(window)
    assert before[0] == side
    window.run("window.seen = []; const draw = window.lqd.explorer.draw;"
               "window.lqd.explorer.draw = function () { draw.call(this); const { heat, computing } = this.state;"
               "window.seen.push([heat && heat.n, computing !== null]); }")  # fmt: skip
    x, y = place(window, 0)
    window.drag((x, y), (x + 60, y + 40))
    after = finished(window)
    seen = window.run(GREY + "delete window.lqd.explorer.draw; return [window.seen, grey]")
    assert {one[0] for one in seen[0]} == {side}
    assert [side, True] in seen[0]
    assert seen[1] == 0
    assert after[0] == side
    assert after[1] != before[1]
    window.run("document.getElementById('reset').click()")
    assert finished(window) == before


def test_another_rule_keeps_the_drag_and_the_picture(window):
    begin(window)
    before = finished(window)
    x, y = place(window, 0)
    window.drag((x, y), (x + 60, y + 40))
    dragged = finished(window)
    now = window.run(
        GREY
        + """
        const rule = document.getElementById("rule"), old = window.lqd.state.heat;
        rule.value = "ns";
        rule.dispatchEvent(new Event("change"));
        const { heat, computing, selected } = window.lqd.state;
        return [heat === old, computing.rule, selected, grey, document.getElementById("status").textContent];
        """
    )
    assert now[:4] == [True, "ns", 0, 0]
    assert now[4].startswith("The background is the earlier one. The new one, of NS, is being computed")
    assert place(window, 0) == [x + 60, y + 40]
    side, _, rule = finished(window)
    assert (side, rule) == (before[0], "ns")
    assert place(window, 0) == [x + 60, y + 40]
    window.run("const r = document.getElementById('rule'); r.value = 'lqd-f'; r.dispatchEvent(new Event('change'))")
    np.testing.assert_allclose(finished(window)[1], dragged[1])
    assert window.complaints() == []


@pytest.mark.parametrize("has_workers", [True, False])
def test_the_background_is_what_a_newcomer_outranks(window, has_workers):
    """By Novelty Search, computed here again: at which point it stands, and in which row."""
    begin(window, "lqd-n")
    window.run(
        """
        const Real = window.Worker;
        if (!arguments[0]) window.Worker = class { constructor() { throw new Error("none here"); } };
        window.lqd.explorer.background = makeBackground(window.lqd.data.landscape.networks);
        document.getElementById("rule").value = "ns";
        window.lqd.explorer.known.clear();
        window.lqd.explorer.compute();
        window.Worker = Real;
        """,
        has_workers,
    )
    side, values, rule = finished(window)
    assert rule == "ns"
    first, second, end = window.run("const { first, second, end } = window.lqd.state; return [first, second, end]")
    axis = np.linspace(-end, end, side)
    expected = np.empty((side, side))
    for row, column in np.ndindex(side, side):
        places = np.column_stack([[*first, axis[column]], [*second, axis[row]]])
        distances = np.sort(np.linalg.norm(places[:, None] - places, axis=-1), axis=1)
        score = distances[:, 1:4].mean(axis=1)  # the first is its own
        expected[row, column] = (score[:-1] < score[-1]).mean()
    np.testing.assert_allclose(np.reshape(values, (side, side)), expected, atol=1e-6)
    assert len(set(values)) > 2


ARROW = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015"}
ENTER, ESCAPE, TAB, HOME, END = "\ue007", "\ue00c", "\ue004", "\ue011", "\ue010"


def heard(window):
    return window.run("return document.querySelector('[aria-live]').textContent")


def test_the_keyboard_is_enough(window):
    """Tab reaches the map, arrows choose, Enter picks up and drops, Escape puts back; all of it is announced."""
    begin(window)
    window.run("[...document.querySelectorAll('#verdicts a')].at(-1).focus({preventScroll: true})")
    window.press(TAB)
    look = "const one = document.activeElement; return [one.id, getComputedStyle(one).outline]"
    name, outline = window.run(look)
    assert name == "map"
    assert "solid 3px" in outline
    window.press(ARROW["down"])
    assert "place 1 of 9" in heard(window)
    window.press(END, ARROW["up"], ARROW["left"])
    assert "place 7 of 9" in heard(window)
    i = window.run("return window.lqd.state.selected")
    home = window.run("return [window.lqd.state.first[arguments[0]], window.lqd.state.second[arguments[0]]]", i)
    before = window.run("return [...window.lqd.state.scores]")
    scrolled = window.run("return scrollY")
    window.press(ENTER)
    assert heard(window).startswith(f"Picked up: Individual {i + 1}:")
    window.press(ARROW["right"], ARROW["right"], ARROW["up"])
    x, y, step = window.run(
        "const s = window.lqd.state, i = arguments[0]; return [s.first[i], s.second[i], 0.02 * s.end]", i
    )
    assert (x, y) == (pytest.approx(home[0] + 2 * step), pytest.approx(home[1] + step))
    assert window.run("return [...window.lqd.state.scores]") != before
    window.press(ENTER)
    assert heard(window).startswith(f"Dropped: Individual {i + 1}:")
    assert finished(window)[0] == 7
    window.press(ENTER, ARROW["left"], ESCAPE)
    assert heard(window).startswith("Put back:")
    assert window.run("return [window.lqd.state.first[arguments[0]], window.lqd.state.second[arguments[0]]]", i) == [
        x,
        y,
    ]
    assert window.run("return scrollY") == scrolled
    window.press(TAB)
    assert window.run("return document.activeElement.id") == "population"
    assert window.complaints() == []


def test_a_finger_drags_what_it_tapped_and_scrolls_the_rest(window, emulated):
    emulated("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
    begin(window)

    def swipe(x, y):
        before = window.run("return scrollY")
        window.touch((x, y), (x, y - 60), (x, y - 120))
        for _ in range(100):
            if window.run("return scrollY") > before + 50:
                break
            time.sleep(0.02)
        return window.run("return scrollY") - before

    homes = [place(window, i) for i in range(9)]
    box = window.run(
        "const b = document.getElementById('map').getBoundingClientRect(); return [b.left, b.top, b.bottom]"
    )
    assert swipe(round(box[0]) + 8, round(box[2]) - 8) > 50  # an empty corner
    begin(window)
    assert swipe(*homes[0]) > 50  # an individual that is not selected
    assert window.run("return window.lqd.state.selected") is None
    begin(window)
    window.touch(homes[0])
    selected = window.run("return window.lqd.state.selected")
    x, y = place(window, selected)
    scrolled = window.run("return scrollY")
    window.touch((x, y), (x + 15, y - 20), (x + 30, y - 40))
    assert place(window, selected) == [x + 30, y - 40]
    assert window.run("return scrollY") == scrolled
    assert window.run("return window.lqd.state.dragging") is False
    assert finished(window)[0] == 7
    assert window.complaints() == []


def test_it_has_axes_and_a_legend(window):
    """With ticks where the values are, and a colour bar for the background and for the points."""
    begin(window)
    ticks, box, end = window.run("""
        const ticks = [...document.querySelectorAll("#ticks-x span")].map((one) => {
          const at = one.getBoundingClientRect();
          return [Number(one.textContent), (at.left + at.right) / 2];
        });
        const box = document.getElementById("map").getBoundingClientRect();
        return [ticks, [box.left, box.width], window.lqd.state.end];
    """)
    assert len(ticks) >= 3
    for value, x in ticks:
        assert x == pytest.approx(box[0] + (value / end + 1) / 2 * box[1], abs=1)
    legend = window.run("return document.querySelector('.legend').innerText")
    for word in ("newcomer outranks", "nobody", "everybody", "Points: score", "lowest", "highest"):
        assert word in legend
    assert window.run("return document.querySelectorAll('.legend .bar').length") == 2


def test_nothing_is_wider_than_a_phone(window, emulated):
    emulated("Emulation.setDeviceMetricsOverride", width=420, height=900, deviceScaleFactor=2, mobile=True)
    wide = window.run("""
        const wide = [...document.querySelectorAll("body *:not(.scroll *):not(.unseen)")]
          .filter((one) => one.getBoundingClientRect().right > 420.5).map((one) => one.outerHTML.slice(0, 80));
        return [document.documentElement.scrollWidth, wide];
    """)
    assert wide == [420, []]
    assert (
        window.run(
            "const m = document.getElementById('map'); window.lqd.explorer.draw(); return m.width / m.clientWidth"
        )
        == 2
    )


def luminance(colour):
    """Of a colour as browsers say it, from 0 to 255."""
    return np.dot([float(part) for part in re.findall(r"[\d.]+", colour)[:3]], [0.2126, 0.7152, 0.0722])


def test_dark_where_dark_is_preferred(window, emulated):
    """Light text on a dark ground, and a light ground on paper."""
    look = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    cells = (
        "return [...document.querySelectorAll('td.holds, td.fails, td.open')].map((one) => getComputedStyle(one).color)"
    )
    ground, ink = map(luminance, window.run(look))
    assert (ground, ink) == (pytest.approx(255), pytest.approx(30, abs=15))
    emulated("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    ground, ink = map(luminance, window.run(look))
    assert ground < 40 < 200 < ink
    assert all(luminance(colour) > 120 for colour in window.run(cells))
    emulated("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert luminance(window.run(look)[0]) == pytest.approx(255)


def test_paper_has_all_rows_and_nothing_to_click(window, emulated):
    emulated("Emulation.setEmulatedMedia", media="print")
    there = window.run("""
        const shown = (one) => one.getClientRects().length > 0;
        return [
          [...document.querySelectorAll("nav, select, input, label, #reset, #filter, #keys")].filter(shown).length,
          getComputedStyle(document.querySelector(".scroll")).maxHeight,
          new Set([...document.querySelectorAll("figure")].map((one) => getComputedStyle(one).breakInside)).size,
          getComputedStyle(document.querySelector("figure")).breakInside,
          shown(document.getElementById("map")), document.getElementById("shown").innerText,
        ];
    """)
    assert there[:5] == [0, "none", 1, "avoid", True]
    assert re.fullmatch(r"Evolved under LQD .*, generation \d+; scored by .*\.", there[5])


def test_without_landscapes_nothing_leads_there(window, tmp_path):
    folder = planted.write(tmp_path / "bench", {}, suite="robots")
    for path in (folder / "landscape").iterdir():
        path.unlink()
    window.open(page.write(folder).as_uri())
    shown = "return [...document.querySelectorAll('nav a')].filter((one) => one.offsetWidth > 0).map((one) => one.hash)"
    assert window.run(shown) == ["#claims", "#figures", "#numbers"]
    assert window.complaints() == []
