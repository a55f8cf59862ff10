"""Progress bars fit the terminal and say what happens; numbers are for people."""

import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from lqd.cli import console
from lqd.io import terminal
from lqd.search.progress import Bar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-110.3, "-110"), (999.6, "1,000"), (-123456.7, "-123,457"), (0.0, "0"), (2.0, "2"), (0.01234, "0.0123"),
        (1.5e-7, "1.5e-07"), (3.21e12, "3.21e+12"), (np.float32(1e5), "100,000"), (np.nan, "nan"), (-np.inf, "-inf"),
    ],
)  # fmt: skip
def test_numbers_for_people(value, text):
    assert terminal.number(value) == text


def test_more_digits():
    assert terminal.number(-1234.5678, 4) == "-1,235"
    assert terminal.number(123.45678, 4) == "123.5"


@pytest.fixture(params=[80, 60, 40])
def shown(request, monkeypatch):
    """A function that says what a terminal of this width would show of some bars."""
    width = request.param

    def on_terminal():
        return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)

    monkeypatch.setattr(terminal, "_console", on_terminal)

    def lines(bars):
        seen = on_terminal()
        seen.print(bars.get_renderable())
        return seen.file.getvalue().rstrip("\n").split("\n")

    lines.width = width
    return lines


LONG = "train: Dominated Novelty Search, f24 lunacek_bi_rastrigin, 12 dimensions, seeds 0 to 31"


@pytest.mark.parametrize("label", ["", "evaluations", "Learned for fitness and novelty", LONG, "進化" * 30])
@pytest.mark.parametrize("facts", [(), ("compiling",), ("best -1,235", "1,024 kept", "QD score 123,457"), (LONG,)])
@pytest.mark.parametrize("total", [None, 96, 1_000_000])
def test_a_bar_is_one_line(shown, label, facts, total):
    bars = terminal.progress()
    task = bars.add_task(label, total=total, facts=facts, unit="generations")
    bars.update(task, completed=0 if total is None else total // 2)
    (line,) = shown(bars)
    assert cell_len(line) <= shown.width
    if shown.width >= 60:
        assert "━" in line
        assert not facts or facts[0][:8] in line
        assert label[:3] in line
        assert total is None or f"{total // 2:,}/{total:,} " in line
        assert "-:--:--" in line


def test_what_has_no_room_is_left_out_from_the_end(shown):
    bars = terminal.progress()
    bars.add_task("evaluations", total=20_000_000, facts=("best -1,235", "1,024 kept", "98% of cells", "QD 123,457"))
    (line,) = shown(bars)
    best, kept, cells = ("best -1,235" in line, "1,024 kept" in line, "QD 123,457" in line)
    assert {80: (True, True, False), 60: (True, False, False)}.get(shown.width, (best, kept, cells)) == (
        best, kept, cells
    )  # fmt: skip


def test_the_time_left(monkeypatch, shown):
    bars = terminal.progress()
    bars.add_task("evaluations", total=10, facts=())
    monkeypatch.setattr("rich.progress.Task.time_remaining", 3 * 3600 + 4 * 60 + 5.9)
    assert "3:04:05" in shown(bars)[0]


def bars_of(monkeypatch):
    """Every set of bars that is made from now on."""
    made, progress = [], terminal.progress
    monkeypatch.setattr(terminal, "progress", lambda: made.append(progress()) or made[-1])
    return made


def test_bars_say_compiling_until_something_is_evaluated(monkeypatch):
    made = bars_of(monkeypatch)

    def facts():
        return list(made[-1].tasks[0].fields["facts"])

    with console.generations_bar("me", 10, quiet=False) as advance:
        assert facts() == ["compiling"]
        advance(0)
        assert facts() == ["compiling"], "the start is evaluated, the loop is not compiled yet"
        advance(3)
        assert facts() == []
    with console.pieces_bar(quiet=False) as progress:
        assert facts() == ["compiling"]
        progress("train: me", 0, 4)
        assert facts() == ["train: me"]
    bar = Bar(terminal.progress(), 100, 1)
    assert facts() == ["compiling"]
    bar.show(10, [])
    assert made[-1].tasks[0].completed == 10
