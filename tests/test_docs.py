"""What the documentation says of results is what the results say."""

import importlib.util
import pathlib

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def test_the_claims_are_those_of_the_results():
    pytest.importorskip("pyarrow")
    spec = importlib.util.spec_from_file_location("make_claims", DOCS / "make_claims.py")
    make_claims = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_claims)
    page = (DOCS / "claims.md").read_text()
    assert make_claims.updated(page) == page, "run python docs/make_claims.py"
