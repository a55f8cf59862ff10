"""Several devices and processes: they share the members of a run, and give the bits of one."""

import json
import pathlib
import re
import socket

import jax
import pytest
from training_runs import COMMON, STAGE, TINY, Reached, assert_same_run, begun, config_of, finished

from lqd import cli
from lqd.cli import flags
from lqd.errors import InvalidInput
from lqd.meta.train import train


@pytest.mark.parametrize(("num_devices", "chunk_size"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_several_devices_need_no_flag(tmp_path, settled, monkeypatch, capsys, num_devices, chunk_size):
    """The chunks are chosen when a run begins, and kept on whatever it goes on."""
    free = {name: value for name, value in (TINY | {"meta_population_size": 8}).items() if name != "chunk_size"}
    monkeypatch.setattr(jax, "device_count", lambda: num_devices)
    assert settled(out=tmp_path / "run", **free) == config_of(free | {"chunk_size": chunk_size})
    with pytest.raises(Reached):
        train(out=tmp_path / "run", **free)
    line = f"{num_devices} devices share the members, {chunk_size} at a time on each (chunk_size).\n"
    assert capsys.readouterr().out.partition("evolving")[0] == (line if num_devices > 1 else "")
    out = begun(tmp_path / "begun", config_of(free | {"chunk_size": 1}), 2)
    for given in (free, {}, {"preset": None}, free | {"num_meta_generations": 9}):
        assert settled(out=out, resume=True, **given).chunk_size == 1
    with pytest.raises(InvalidInput, match="holds this run, 2 of 4 meta-generations done"):
        train(out=out, quiet=True, **free)


def test_chunks_that_were_asked_for_are_not_changed(tmp_path, settled, monkeypatch):
    out = begun(tmp_path / "run", config_of(TINY | {"meta_population_size": 8, "chunk_size": 4}), 2)
    with pytest.raises(InvalidInput, match="differs in chunk_size: 4 there, 2 here"):
        train(out=out, resume=True, quiet=True, **TINY | {"meta_population_size": 8})
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    with pytest.raises(
        InvalidInput, match=r"chunks of 4 members, .*: 8 members are 2 chunks, .* Continue with 1 or 2 of them"
    ):
        train(out=out, resume=True, quiet=True)
    with pytest.raises(InvalidInput, match="meta_population_size=6 cannot be shared by 4 devices; 4 or 8 can"):
        train(out=tmp_path / "new", quiet=True, **COMMON | STAGE | {"meta_population_size": 6})


JOIN = """
import sys
from lqd.cli.train import _join
_join(dict.fromkeys(("coordinator_address", "num_processes", "process_id")))
import jax
print(jax.process_index(), jax.process_count(), jax.device_count())
"""


def test_under_slurm_processes_find_each_other(start_python, monkeypatch):
    job = {"SLURM_JOB_ID": str(free_port() % 4096), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    running = []
    for i in "01":
        for name, value in (job | {"SLURM_PROCID": i, "SLURM_LOCALID": i}).items():
            monkeypatch.setenv(name, value)
        running.append(start_python(JOIN))
    for number, process in enumerate(running):
        said, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        assert said.split() == [str(number), "2", "2"]


def test_the_pods_of_kubernetes_run_what_the_two_processes_above_do():
    """Their flags; and the name of the first one is that of the Job, and of the Service."""
    page = (pathlib.Path(__file__).parents[2] / "docs/howto/cluster.md").read_text()
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    (words,) = re.findall(r"^ +exec\n +lqd (.*?)\n +resources", manifest, re.M | re.S)
    command = cli.parse([word.replace("$JOB_COMPLETION_INDEX", "1") for word in words.split()])
    given = {field.name: getattr(group, field.name) for group, field in flags.flat(command)}
    assert (given["distributed"], given["num_processes"], given["process_id"]) == (True, 2, 1)
    assert given["coordinator_address"] == "lqd-0.lqd:1234"
    assert re.findall(r"name: (\w+) }\n", manifest) == ["lqd", "lqd", "lqd"]  # Service, its selector, Job
    assert re.findall(r"(?:completions|parallelism): (\d+)", manifest) == ["2", "2"]
    assert "subdomain: lqd\n" in manifest


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


# Plain tasks: what takes time is that each device compiles the programs for itself.
ON = {
    "bbob": TINY | {"functions": ("sphere",), "noise": False, "rotate": False},
    "several families": {n: v for n, v in TINY.items() if n != "functions"}
    | {"tasks": "arm-small,noisy-arm-small", "shapes": ("population_size=6", "batch_size=3 num_generations=2,4")},
}


# BBOB alone runs the same programs as one part of several: it is in the long suite.
@pytest.mark.parametrize(
    "case", [pytest.param("bbob", marks=pytest.mark.long), pytest.param("several families", marks=pytest.mark.slow)]
)
def test_two_processes_with_two_devices_give_the_bits_of_one(tmp_path, lqd_train, case):
    settings = ON[case] | {"meta_population_size": 8, "num_meta_generations": 3}
    cluster = ("--distributed", "--coordinator-address", f"127.0.0.1:{free_port()}", "--num-processes", "2")
    free = {name: value for name, value in settings.items() if name != "chunk_size"}  # 2 is what four devices get
    running = [lqd_train(tmp_path / "two", free, "--quiet", *cluster, "--process-id", i, num_devices=2) for i in "01"]
    for process in running:
        status, errors = finished(process)
        assert status == 0, errors
    train(out=tmp_path / "one", quiet=True, **settings)
    assert_same_run(tmp_path / "two", tmp_path / "one")
    assert len(json.loads((tmp_path / "two/card.json").read_text())["sessions"][0]["devices"]) == 4
