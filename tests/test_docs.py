"""What the documentation says of results is what the results say."""

import importlib.util
import json
import pathlib

import pytest
from PIL import Image

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def script(name):
    """A script of docs as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_claims_are_those_of_the_results():
    pytest.importorskip("pyarrow")
    make_claims = script("make_claims")
    page = (DOCS / "claims.md").read_text()
    assert make_claims.updated(page) == page, "run python docs/make_claims.py"


def test_the_chart_shows_the_numbers_of_its_page():
    make_chart = script("make_chart")
    page = (DOCS / "performance.md").read_text()
    drawn = make_chart.numbers(page)
    assert drawn[make_chart.SPEED]["lqd DNS"][0] > 0
    assert len(drawn[make_chart.ASK_TELL]) == 5
    with Image.open(DOCS / "images" / "performance.png") as picture:
        assert json.loads(picture.text["Comment"]) == drawn, "run python docs/make_chart.py"
    assert "](images/performance.png)" in page
