"""Figures and page from planted results: what they say, that they say it is quick, and that names stay text."""

import base64
import hashlib
import re

import numpy as np
import planted
import pytest

from lqd.bench import suites
from lqd.bench.results import Folder
from lqd.bench.verdicts import WORDS, counts, verdicts
from lqd.cli import main
from lqd.errors import InvalidInput, Unreadable
from lqd.report import bench_figures, draw, landscape_figures, style
from lqd.report import page as page_files


def texts(figure):
    found = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    return " ".join(found)


@pytest.mark.parametrize("name", bench_figures.FIGURES)
def test_every_figure_says_that_it_is_quick(folder, name):
    figure = bench_figures.FIGURES[name](Folder(folder))
    assert "QUICK PRESET" in texts(figure)


def test_bars_are_medians_in_units_of_randoms(folder):
    read = Folder(folder)
    ax = bench_figures.bars_ood(read).axes[1]
    novelty = {rule: read.table("ood", rule)["novelty"] for rule in read.parts["ood"]["rules"]}
    rules = [rule for rule in novelty if rule != "random"]
    expected = [np.median(novelty[rule], axis=0) / np.median(novelty["random"], axis=0) for rule in rules]
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(tops, np.ravel(expected), rtol=1e-5)


def test_the_pareto_front_is_drawn_through_those_not_dominated(folder):
    ax = bench_figures.pareto(Folder(folder)).axes[0]
    (front,) = [line for line in ax.lines if line.get_label() == "not dominated"]
    points = [line.get_xydata()[0] for line in ax.lines if line.get_marker() in style.MARKERS.values()]
    best = [p for p in points if not any((q >= p).all() and (q > p).any() for q in points)]
    np.testing.assert_allclose(front.get_xydata(), sorted(map(tuple, best)))


def test_every_rule_of_the_suites_has_a_look_of_its_own():
    assert set(style.LOOKS) == set(suites.RULES)
    assert len(set(style.COLOURS.values())) == len(style.EVERY) >= len(style.LOOKS)


@pytest.mark.slow
def test_files(folder, capsys, tmp_path):
    main(["figure", "pareto", str(folder)])
    for ending, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert (folder / "figures" / f"pareto.{ending}").read_bytes().startswith(magic)
    main(["figure", "animation", "--results", str(folder), "--out", str(tmp_path / "a.gif")])
    assert (tmp_path / "a.gif").read_bytes().startswith(b"GIF8")
    main(["report", str(folder)])
    assert "report.html" in capsys.readouterr().out
    for given in ([], [str(folder), "--results", str(folder)]):
        with pytest.raises(SystemExit):
            main(["figure", "pareto", *given])
        assert "figure needs one folder of results" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match=r"figure.*'paretto'.*pareto"):
        draw.draw("paretto", folder)
    with pytest.raises(InvalidInput, match=r"out must end in"):
        draw.draw("pareto", folder, tmp_path / "a.bmp")


@pytest.mark.slow
def test_a_bench_makes_each_figure_once(folder, monkeypatch, capsys):
    """And saves it twice, as PNG and PDF, and puts it into the page."""
    made = []

    def counted(name, make):
        return lambda *given: made.append(name) or make(*given)

    for name, make in bench_figures.FIGURES.items():
        monkeypatch.setitem(bench_figures.FIGURES, name, counted(name, make))
    monkeypatch.setattr(landscape_figures, "animation", counted("animation", landscape_figures.animation))
    monkeypatch.setattr(suites, "run", lambda *_: None)  # the results are there
    main(["bench", "--suite", "all", "--out", str(folder), "--quiet"])
    assert made == [*bench_figures.FIGURES, "animation"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name in made:
        assert page.count(f'<figure id="figure-{name}"><img') == 1
        for ending in ("gif",) if name == "animation" else ("png", "pdf"):
            assert (folder / "figures" / f"{name}.{ending}").exists()


def test_a_figure_whose_results_are_missing_says_what_to_run(tmp_path):
    folder = planted.write(tmp_path, {}, suite="robots")
    with pytest.raises(InvalidInput, match=r"no results for 'grid': lqd bench --suite grid"):
        draw.draw("grid", folder)
    (folder / "results.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(Unreadable, match=r"results\.parquet: cannot be read"):
        draw.draw("robots", folder)


def test_the_page_loads_nothing_and_names_stay_text(page, folder):
    assert planted.NASTY not in page
    assert "<img src=x" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", page)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "QUICK PRESET" in page
    assert counts(verdicts(Folder(folder))) in page


def test_every_verdict_has_a_colour_of_its_own(folder):
    assert {row["verdict"] for row in verdicts(Folder(folder))} == set(WORDS.values())
    script, style = ((page_files.HERE / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    (table,) = re.findall(r"const VERDICTS = \{(.*?)\};", script)
    classes = dict(re.findall(r'"?(\w[\w ]*)"?: "(\w+)"', table))
    assert set(classes) == set(WORDS.values())
    colours = [re.findall(rf"td\.{name} \{{ color: ([^;]+);", style) for name in classes.values()]
    assert len({colour for (colour,) in colours}) == len(WORDS)
