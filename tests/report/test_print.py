"""Figures in print: as wide as asked, nothing cut off, no text below 6 pt, one scale where one colour bar is."""

import itertools

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from lqd.bench.results import Folder
from lqd.cli import main
from lqd.report import bench_figures, curve_figures, draw, labels, landscape_figures, style


def texts(figure):
    """Everything that says something and can be seen."""
    found = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return [text for text in found if text.axes is None or text.axes.get_visible()]


def assert_printable(figure, width, name):
    assert figure.get_figwidth() <= width.inches
    assert width.is_column <= (figure.get_figwidth() == width.inches)
    figure.draw_without_rendering()
    assert min(text.get_fontsize() for text in texts(figure)) >= 6
    page = figure.bbox.padded(figure.dpi / 72)
    for ax in figure.axes:
        inside = ax.get_tightbbox() if ax.get_visible() else figure.bbox
        np.testing.assert_allclose(inside.extents, type(page).intersection(page, inside).extents, err_msg=name)


@pytest.mark.parametrize("name", bench_figures.FIGURES)
def test_a_column_holds_every_figure(folder, name):
    width = style.WIDTHS["column"]
    assert_printable(draw.make(name, Folder(folder), width), width, name)


@pytest.mark.parametrize("name", ["pareto", "robots", "aggregate"])
def test_a_page_is_seven_inches_wide(folder, name):
    assert_printable(draw.make(name, Folder(folder)), style.FULL, name)


def test_width_on_the_command_line(folder, capsys, tmp_path):
    main(["figure", "ecdf", str(folder), "--width", "column"])
    with Image.open(folder / "figures" / "ecdf-column.png") as picture:
        assert picture.width == pytest.approx(3.33 * style.DPI, abs=1)
    with pytest.raises(SystemExit):
        main(["figure", "ecdf", str(folder), "--width", "poster"])
    assert "column" in capsys.readouterr().err


def test_text_in_pdf_is_truetype(folder, tmp_path):
    style.save(draw.make("robots-aggregate", Folder(folder)), tmp_path / "figure.pdf")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


def test_landscapes_have_two_scales_for_all_plots(folder):
    figure = landscape_figures.landscape(Folder(folder))
    rules = figure.axes[:-2]
    assert {image.get_clim() for ax in rules for image in ax.images} == {(0, 1)}
    points = [one for ax in rules for one in ax.collections if isinstance(one, PathCollection)]
    assert len({id(one.norm) for one in points}) == 1
    assert len(rules) == len(points) == 4
    shown = [image.get_array() for ax in rules for image in ax.images]
    share = Folder(folder).landscape("dns")["share"][-1]
    np.testing.assert_allclose(shown[-1], share)


def test_robots_show_zero_and_all_tasks(folder):
    figure = curve_figures.robots(Folder(folder))
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    assert titles == ["Arm", "Hopper", "Walker2d", "Half-Cheetah", "Ant (velocity)", "Ant (feet)"]
    for ax in figure.axes:
        low, high = ax.get_ylim()
        assert low <= 0 <= high


def test_bands_are_t_intervals(folder):
    read = Folder(folder)
    ax = curve_figures.robots(read).axes[0]
    (band,) = [one for one in ax.collections if one.get_facecolor()[0][:3] == pytest.approx(colour_of("ga"))]
    last = read.history("arm", "ga")["best"][-1, :, 0]
    half = 2.365 * last.std(ddof=1) / np.sqrt(8)  # t with 7 degrees of freedom
    corners = band.get_paths()[0].vertices
    ends = corners[corners[:, 0] == corners[:, 0].max(), 1]
    np.testing.assert_allclose((ends.min(), ends.max()), (last.mean() - half, last.mean() + half), rtol=1e-3)


def colour_of(rule):
    return tuple(int(style.COLOURS[rule][i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_the_front_is_a_staircase(folder):
    ax = bench_figures.pareto(Folder(folder)).axes[0]
    (front,) = [line for line in ax.lines if line.get_label() == "not dominated"]
    assert front.get_drawstyle() == "steps-pre"


def test_a_bar_of_zero_says_so():
    ax = Figure().subplots()
    bench_figures._bars_of(
        ax, {"ga": np.array([[0.0], [0.0], [0.1]]), "me": np.array([[2.0], [3.0], [4.0]])}, "novelty"
    )
    ga, me = ax.patches
    assert [text.get_text() for text in ax.texts] == ["0"]
    assert (ga.get_y() + ga.get_height(), me.get_height()) == pytest.approx((0.05, 2.0))
    assert ax.get_ylim()[0] <= 0.05


def test_a_bar_at_the_floor_says_so():
    ax = Figure().subplots()
    found = {"ga": np.full((3, 2), 50.0), "me": np.full((3, 2), 1e6)}
    bench_figures._bars_of(ax, found, "fitness", np.array([1e6, 2e6]))
    (sign,) = ax.texts
    assert sign.get_text() == "\N{GREATER-THAN OR EQUAL TO}"
    bar = ax.patches[2]
    assert sign.get_position() == pytest.approx((bar.get_x() + bar.get_width() / 2, 1e6))


@pytest.mark.parametrize("seed", range(3))
def test_names_cover_nothing(seed):
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.uniform(0.4, 0.5, (4, 2)), rng.uniform(0, 1, (4, 2))])
    ax = Figure(figsize=(3.33, 3)).subplots()
    ax.plot(*points.T, "o")
    line = np.array([(0.3, 1.0), (0.3, 0.6), (0.9, 0.6)])
    named = labels.place(ax, points, [f"name {i}" for i in range(len(points))], [line])
    ax.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in named]  # without leaders
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.contains(*spot) for spot in ax.transData.transform(points))
        for start, end in itertools.pairwise(line):
            along = ax.transData.transform(start + np.linspace(0, 1, 200)[:, None] * (end - start))
            assert not any(box.contains(*spot) for spot in along)
