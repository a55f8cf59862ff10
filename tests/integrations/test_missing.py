"""An integration without the package that it is for says what to install."""

import importlib
import sys

import pytest

from lqd.errors import InvalidInput


@pytest.mark.parametrize(("name", "what"), [("ribs", "LQDArchive"), ("qdax", "LQDRepertoire")])
def test_a_missing_package_is_named(name, what, monkeypatch):
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"lqd.integrations.{name}", raising=False)
    with pytest.raises(InvalidInput, match=rf"{what} needs .*{name}.*pip install 'lqd\[{name}\]'"):
        importlib.import_module(f"lqd.integrations.{name}")
