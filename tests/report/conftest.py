import planted
import pytest

from lqd.bench.results import Folder
from lqd.report import page as pages

STRENGTHS = {"lqd-n": 2.0, "lqd-f": 2.0, "lqd-fn": 2.0, "me": 1.5, "dns": 1.0, "ns": 1.0, "ga": 0.2}


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return planted.write(tmp_path_factory.mktemp("bench"), STRENGTHS, names=("sphere", planted.NASTY, "katsuura"))


@pytest.fixture(scope="package")
def page(folder):
    return pages.page(Folder(folder))


@pytest.fixture
def emulated(window):
    """What the window emulates, until the end of the test."""
    yield window.emulate
    window.emulate("Emulation.clearDeviceMetricsOverride")
    window.emulate("Emulation.setEmulatedMedia", media="", features=[])
