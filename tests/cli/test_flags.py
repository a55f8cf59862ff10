"""What `--help` says: every flag has a text, types and defaults are for people, training shows its presets."""

import dataclasses
import re
import typing
from typing import Annotated

import pytest
import tyro

import lqd
from lqd import cli
from lqd.cli import flags
from lqd.meta import presets

COMMANDS = {named.name: kind for kind, named in map(typing.get_args, typing.get_args(cli.Command))}


def help_of(capsys, monkeypatch, *words: str) -> str:
    """What the terminal shows, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def line(text: str) -> str:
    """Without the boxes and the line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─|+]|-{3,}", " ", text).split())


def without_text(kind: type) -> list[str]:
    return [
        field.name for owner, field in flags.flat(kind) if not flags.texts(typing.cast(type, owner)).get(field.name)
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_a_text(command):
    assert without_text(COMMANDS[command]) == []


def test_a_flag_without_text_is_found():
    @dataclasses.dataclass(frozen=True)
    class Group:
        seed: int = 0

    @dataclasses.dataclass(frozen=True)
    class Command:
        """Does it."""

        out: str = "here"
        """Where."""
        group: Group = dataclasses.field(default_factory=Group)

    assert without_text(Command) == ["seed"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_speaks_to_people(command, capsys, monkeypatch):
    said = help_of(capsys, monkeypatch, command)
    _, _, rest = said.partition("\n\n")
    assert max(map(len, rest.splitlines())) <= 80
    for machine in ("{None}", "None)", "(default: )", "(default: False)", "STR [STR"):
        assert machine not in said
    described = line(rest)
    for owner, field in flags.flat(COMMANDS[command]):
        flag = field.name.upper() if is_positional(owner, field) else f"--{field.name.replace('_', '-')}"
        assert flag in described
        first_words = " ".join(flags.texts(owner)[field.name].split()[:3])
        assert first_words in described, f"{flag}: {first_words}"


def is_positional(owner: type, field: dataclasses.Field) -> bool:
    hint = typing.get_type_hints(owner, include_extras=True)[field.name]
    return typing.get_origin(hint) is Annotated and tyro.conf.Positional in typing.get_args(hint)


def test_defaults_are_shown(capsys, monkeypatch):
    said = line(help_of(capsys, monkeypatch, "run"))
    assert "The first seed. (default: 0)" in said
    assert "(default: --rotate)" in said
    assert "Stop after this many seconds and keep the current result. --overwrite" in said
    assert "FIGURE [FOLDER] Draw a figure" in line(help_of(capsys, monkeypatch, "figure"))


def test_the_flags_of_training_are_in_groups_with_the_values_of_the_presets(capsys, monkeypatch):
    said = help_of(capsys, monkeypatch, "train")
    headings = re.findall(r"\b([a-z-]+) options\b", said)
    assert headings == ["objective", "search", "inner-runs", "network", "tasks", "bbob", "imitation", "validation",
                        "devices"]  # fmt: skip
    said = line(said)
    stages = {name: config.stages[-1] for name, config in presets.PRESETS.items()}
    lengths = "; ".join(f"{name}: {stage.num_meta_generations}" for name, stage in stages.items())
    assert f"({lengths})" in said
    assert "Layers of attention. (smoke: 2; small, reference, paper: 4)" in said
    assert "Initial step size of the strategy. (default: 0.1)" in said


@pytest.mark.parametrize("words", [("--preset", "small"), ("--preset=small",), ("--preset", "paper", "--preset=small")])
def test_with_a_preset_training_shows_its_values(words, capsys, monkeypatch):
    said = line(help_of(capsys, monkeypatch, "train", *words))
    assert "Layers of attention. (small: 4)" in said
    assert "smoke:" not in said


def test_imitation_shows_its_own_presets(capsys, monkeypatch):
    said = line(help_of(capsys, monkeypatch, "imitate"))
    assert f"(smoke: {presets.imitation_preset('smoke').validation.num_tasks}; " in said
    assert "Layers of attention. (default: 4)" in said  # also in smoke, where `lqd train` has two


def test_every_setting_of_training_has_a_value():
    for name in presets.SETTINGS:
        assert presets.value_of(name, presets.PRESETS["small"]) is not None
    assert presets.value_of("num_tasks", presets.imitation_preset("small")) is None


def test_the_list_of_commands_has_a_sentence_on_each(capsys, monkeypatch):
    said = help_of(capsys, monkeypatch)
    assert max(map(len, said.partition("\n\n")[2].splitlines())) <= 80
    assert "lqd --version" in said
    assert "metrics.csv" not in said, "that is for `lqd run --help`"


def test_version(capsys):
    cli.main(["--version"])
    assert re.fullmatch(rf"lqd {lqd.__version__} \(jax [\d.a-z]+, Python [\d.]+\S*\)\n", capsys.readouterr().out)
