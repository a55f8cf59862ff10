"""The log holds whole rows only, and a killed and resumed run leaves the rows of an undisturbed one."""

import signal
import subprocess
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from lqd.errors import InvalidInput, Unreadable
from lqd.meta.log import Log, read

COLUMNS = ("step", "fitness", "note")


def row(step):
    return {"step": step, "fitness": np.float32(step) / 3, "note": f"step {step}, of many"}


def write(path, steps, **settings):
    with Log(path, COLUMNS, **settings) as log:
        for step in steps:
            log.write(row(step))
    return path.read_bytes()


def without_sums(path):
    """The text of a log without its last column."""
    return "".join(f"{line.rpartition(',')[0]}\n" for line in path.read_text(encoding="utf-8").splitlines())


def test_a_row_is_a_line_and_there_before_the_log_is_closed(tmp_path):
    with Log(tmp_path / "new" / "log.csv", COLUMNS) as log:
        assert without_sums(log.path) == "step,fitness,note\n"
        log.write({"note": 'a "b", c', "step": 1})
        assert without_sums(log.path) == 'step,fitness,note\n1,,"a ""b"", c"\n'
        log.write({"step": 2, "fitness": None, "note": "µ"})
        assert without_sums(log.path).endswith("2,,µ\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.1, "0.1"),
        (1 / 3, "0.3333333333333333"),
        (np.float32(0.1), "0.1"),
        (jnp.float32(1e-7), "1e-07"),
        (np.array(2), "2"),
        (True, "True"),
        (float("nan"), "nan"),
        (-np.inf, "-inf"),
    ],
)
def test_numbers_are_written_as_short_as_exact(tmp_path, value, text):
    with Log(tmp_path / "log.csv", ("value", "other")) as log:
        log.write({"value": value})
    assert without_sums(log.path) == f"value,other\n{text},\n"


def test_reads_back_what_was_written(tmp_path):
    values = [1 / 3, 1e-300, -np.inf, 0.1 + 0.2]
    with Log(tmp_path / "log.csv", COLUMNS) as log:
        for step, value in enumerate(values):
            log.write({"step": step, "fitness": value, "note": "NA"})
        log.write({"step": 4})
    frame = read(log.path)
    assert frame["step"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(frame["fitness"][:4], values, rtol=1e-15)  # pandas 2 rounds the last digit its own way
    assert np.isnan(frame["fitness"][4])
    assert frame["note"].tolist()[:4] == ["NA"] * 4


def test_opening_again_appends(tmp_path):
    whole = write(tmp_path / "whole.csv", range(6))
    write(tmp_path / "log.csv", range(3))
    assert write(tmp_path / "log.csv", range(3, 6)) == whole


@pytest.mark.parametrize("torn", [b"", b"8", b"8,0.3", b'8,0.3,"ste', b"8,0.3,\xc2"])
def test_a_killed_and_resumed_run_leaves_the_same_rows(tmp_path, torn):
    whole = write(tmp_path / "whole.csv", range(10))
    path = tmp_path / "log.csv"
    path.write_bytes(write(path, range(8)) + torn)
    assert read(path)["step"].tolist() == list(range(8))
    assert write(path, range(6, 10), resume_at=("step", 5)) == whole
    assert not list(tmp_path.glob(".log*"))


def test_resuming_where_it_ended_or_before_it_began(tmp_path):
    whole = write(tmp_path / "log.csv", range(4))
    assert write(tmp_path / "log.csv", [], resume_at=("step", 3)) == whole
    assert write(tmp_path / "log.csv", range(4), resume_at=("step", -1)) == whole
    assert write(tmp_path / "new.csv", range(4), resume_at=("step", 9)) == whole


def test_a_row_without_the_counter_goes_with_the_row_before(tmp_path):
    with Log(tmp_path / "log.csv", COLUMNS) as log:
        for step in (1, 2):
            log.write({"step": step})
            log.write({"note": f"after {step}"})
    Log(log.path, COLUMNS, resume_at=("step", 1)).close()
    assert without_sums(log.path) == "step,fitness,note\n1,,\n,,after 1\n"


def test_other_columns_keep_the_rows_that_fit_by_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,gone,fitness\n1,a,0.5\n2,b,0.25\n3,")
    with Log(path, ("fitness", "step", "sigma"), resume_at=("step", 2)) as log:
        log.write({"step": 3, "sigma": 0.1})
    assert without_sums(path) == "fitness,step,sigma\n0.5,1,\n0.25,2,\n,3,0.1\n"


def test_an_empty_file_and_one_with_windows_line_ends(tmp_path):
    path = tmp_path / "log.csv"
    path.touch()
    assert write(path, []) == b"step,fitness,note,check\n"
    path.write_bytes(b"step,fitness,note\r\n1,2.0,x\r\n")
    whole = write(path, [])
    assert without_sums(path) == "step,fitness,note\n1,2.0,x\n"
    path.write_bytes(whole.replace(b"\n", b"\r\n"))
    assert write(path, []) == whole


def test_a_killed_process_loses_no_row_it_wrote(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from lqd.meta.log import Log\n"
        "log = Log(sys.argv[1], ('step',))\n"
        "for step in range(100): log.write({'step': step})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "log.csv")], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert read(tmp_path / "log.csv")["step"].tolist() == list(range(100))


ALTERED = {
    "another number": lambda text: text.replace("0.5", "0.6", 1),
    "another checksum": lambda text: text[:-2] + ("0" if text[-2] != "0" else "1") + "\n",
    "a row less": lambda text: "".join(text.splitlines(keepends=True)[i] for i in (0, 1, 3)),
    "two rows in another order": lambda text: "".join(text.splitlines(keepends=True)[i] for i in (0, 2, 1, 3)),
    "another name in the header": lambda text: text.replace("fitness", "fitmess"),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_log_that_was_altered_is_refused(tmp_path, how):
    path = tmp_path / "log.csv"
    with Log(path, COLUMNS) as log:
        for step in range(3):
            log.write({"step": step, "fitness": 0.5})
    altered = ALTERED[how](path.read_text())
    assert altered != path.read_text()
    path.write_text(altered)
    for use in (read, lambda path: Log(path, COLUMNS), lambda path: Log(path, COLUMNS, resume_at=("step", 1))):
        with pytest.raises(Unreadable, match=r"log\.csv: line \d was altered"):
            use(path)
    assert path.read_text() == altered


def test_an_earlier_log_without_checksums_gets_them(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,fitness,note\n0,0.5,x\n")
    assert read(path)["fitness"].tolist() == [0.5]
    write(path, [1])
    assert path.read_text().splitlines()[0] == "step,fitness,note,check"
    assert read(path)["step"].tolist() == [0, 1]
    assert "check" not in read(path)


FOREIGN = {
    "other columns": (b"a,b\n1,2\n", "not this run's log: its header is .*'a', 'b'.*Move it away"),
    "no line": (b'{"step": 1}', "not this run's log"),
    "binary": (b"\xff\xfe\n", "cannot be read as a log"),
    "ragged": (b"step,note\n1,2\n3\n", "line 3 has 1 cells, the header 2"),
    "no counter": (b"note\nx\n", "no column 'step' to resume at"),
    "text for a counter": (b"step\nx\n", "line 2: step must be a number, got 'x'"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_file_that_is_not_the_log_is_left_alone(tmp_path, case):
    content, message = FOREIGN[case]
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(Unreadable, match=message):
        Log(tmp_path / "log.csv", COLUMNS, resume_at=("step", 1))
    assert (tmp_path / "log.csv").read_bytes() == content


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        read(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("step")
    with pytest.raises(Unreadable, match="no header"):
        read(tmp_path / "log.csv")


@pytest.mark.parametrize("columns", [(), "step", ("a", "a"), ("a", ""), ("a\nb",), (1,), ("a", "check")])
def test_bad_columns(tmp_path, columns):
    with pytest.raises(InvalidInput, match="columns must be one or more different names"):
        Log(tmp_path / "log.csv", columns)


def test_bad_rows_write_nothing(tmp_path):
    with Log(tmp_path / "log.csv", COLUMNS) as log:
        with pytest.raises(InvalidInput, match=r"unknown column 'fitnes'. Did you mean 'fitness'"):
            log.write({"step": 1, "fitnes": 2})
        with pytest.raises(InvalidInput, match="fitness must be one number, a text or None"):
            log.write({"fitness": np.zeros(2)})
        with pytest.raises(InvalidInput, match="fitness must be one number"):
            log.write({"fitness": 1j})
        with pytest.raises(InvalidInput, match="note: text in a log must be one line"):
            log.write({"note": "a\nb"})
    assert without_sums(log.path) == "step,fitness,note\n"
    with pytest.raises(InvalidInput, match="unknown column of resume_at 'generation'"):
        Log(tmp_path / "log.csv", COLUMNS, resume_at=("generation", 1))


class Recorder:
    """Stands for tensorboardX.SummaryWriter and for wandb's run: keeps the calls."""

    def __init__(self, **settings):
        self.calls = [("init", settings)]

    def __getattr__(self, name):
        return lambda *arguments, **named: self.calls.append((name, *arguments, *([named] if named else [])))


def recorded(monkeypatch, module, factory):
    made = []

    def make(**settings):
        made.append(Recorder(**settings))
        return made[-1]

    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{factory: make}))
    return made


def test_tensorboard_gets_the_numbers_by_step(monkeypatch, tmp_path):
    made = recorded(monkeypatch, "tensorboardX", "SummaryWriter")
    write(tmp_path / "log.csv", [3], tensorboard=tmp_path / "board")
    write(tmp_path / "log.csv", [], tensorboard=tmp_path / "board", resume_at=("step", 2))
    folder = str(tmp_path / "board")
    scalar = ("add_scalar", "fitness", 1.0, 3)
    assert made[0].calls == [("init", {"logdir": folder, "purge_step": None}), scalar, ("flush",), ("close",)]
    assert made[1].calls == [("init", {"logdir": folder, "purge_step": 3}), ("close",)]


def test_wandb_gets_the_numbers_by_step(monkeypatch, tmp_path):
    made = recorded(monkeypatch, "wandb", "init")
    log = Log(tmp_path / "log.csv", COLUMNS, wandb="project")
    log.write(row(3))
    log.close()
    log.close()
    assert made[0].calls == [
        ("init", {"project": "project", "name": tmp_path.name, "dir": str(tmp_path)}),
        ("log", {"step": 3, "fitness": 1.0}, {"step": 3}),
        ("finish",),
    ]


@pytest.mark.parametrize(("setting", "module"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_says_what_to_install(monkeypatch, tmp_path, setting, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput, match=rf"needs {module} .*pip install 'lqd\[{setting}\]'"):
        Log(tmp_path / "log.csv", COLUMNS, **{setting: str(tmp_path / "x")})
    assert not list(tmp_path.iterdir())
    write(tmp_path / "log.csv", [1])  # off by default: not needed


def test_the_real_tensorboard_writes_events(tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra lqd[tensorboard]")
    write(tmp_path / "log.csv", range(3), tensorboard=tmp_path / "board")
    (events,) = (tmp_path / "board").iterdir()
    assert b"fitness" in events.read_bytes()


def test_the_real_wandb_writes_a_run_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra lqd[wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    write(tmp_path / "log.csv", range(3), wandb="project")
    assert list((tmp_path / "wandb").glob("offline-run-*"))
