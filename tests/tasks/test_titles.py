"""Tasks have one title each, wherever they are named."""

from lqd import tasks


def test_titles():
    assert len({tasks.title(name) for name in tasks.names()}) == len(tasks.names())
    assert (tasks.title("brax/ant-feet"), tasks.title("ant-feet")) == ("Ant (feet)",) * 2
    assert (tasks.title("bbob/schaffers_f7"), tasks.title("linear_slope")) == ("Schaffers F7", "Linear slope")
    assert not any("_" in tasks.title(name) or "/" in tasks.title(name) for name in tasks.names())


def test_other_names_stay_as_they_are():
    assert [tasks.title(name) for name in ("my_function", "a/b", "grid 128")] == ["my_function", "a/b", "grid 128"]
