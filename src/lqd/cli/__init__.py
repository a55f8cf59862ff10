"""The command `lqd`: each subcommand is in the module of its name, as a dataclass.

Its fields are the flags, its docstring is the help, its `main` is what it does. What takes long to import and is not
needed for `lqd --help`, such as Matplotlib and pandas, is imported where it is used.
"""

import functools
import io
import operator
import os
import pathlib
import platform
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from lqd.cli import flags, learning
from lqd.cli.bench import Bench
from lqd.cli.demo import Demo
from lqd.cli.figure import Figure
from lqd.cli.imitate import Imitate
from lqd.cli.report import Report
from lqd.cli.rerun import Rerun
from lqd.cli.rules import Rules
from lqd.cli.run import Run
from lqd.cli.show import Show
from lqd.cli.tasks import Tasks
from lqd.cli.train import Train
from lqd.errors import InvalidInput


def _keep_compiled_programs() -> None:
    """A second `lqd run` starts at once. JAX_COMPILATION_CACHE_DIR chooses another folder."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]  # made when JAX starts
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "lqd" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Imitate, tyro.conf.subcommand("imitate")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Rerun, tyro.conf.subcommand("rerun")]
    | Annotated[Tasks, tyro.conf.subcommand("tasks")]
    | Annotated[Rules, tyro.conf.subcommand("rules")]
)


ABOUT = """Learned Quality-Diversity: diverse sets of good solutions.

See also `lqd COMMAND --help` and `lqd --version`."""


def parse(args: list[str] | None = None) -> Command:
    """The command that the words on the command line name."""
    words = sys.argv[1:] if args is None else args
    with flags.with_defaults(learning.defaults(words)):
        command: Command = tyro.cli(
            _with_help(words), args=words, prog="lqd", description=ABOUT, config=(tyro.conf.OmitArgPrefixes,)
        )
    if isinstance(command, flags.Typed):
        command.remember(words)
    return command


def _with_help(words: Sequence[str]) -> Any:
    """The commands as tyro is to show them: the one that was chosen with all of its description."""
    shown = []
    for command in typing.get_args(Command):
        kind, named = typing.get_args(command)
        text = (flags.description if named.name in words[:1] else flags.summary)(kind)
        shown.append(Annotated[flags.described(kind), tyro.conf.subcommand(named.name, description=text)])
    return functools.reduce(operator.or_, shown)


def version() -> str:
    """Of lqd, and of what decides how it runs."""
    import jax

    import lqd

    return f"lqd {lqd.__version__} (jax {jax.__version__}, Python {platform.python_version()})"


def main(args: list[str] | None = None) -> None:
    """Entry point; bad input ends with one line on stderr and status 2."""
    say_anything()
    try:
        if (sys.argv[1:] if args is None else args) == ["--version"]:
            print(version())
            return
        command = parse(args)
        _keep_compiled_programs()
        command.main()
        sys.stdout.flush()
    except InvalidInput as error:
        raise _end(error, 2) from None
    except KeyboardInterrupt as error:
        raise _end(error or "interrupted", 130) from None
    except BrokenPipeError:  # `lqd rules | head`: the reader has enough
        _forget_output()
        raise SystemExit(141) from None
    except OSError as error:
        if error.filename is None:  # not a file of ours: results are kept, only printing failed
            _forget_output()
            raise _end(f"the output cannot be written ({error.strerror or error}).", 1) from None
        raise _end(f"{_shown(error.filename)}: {error.strerror or error}.", 2) from None


def say_anything() -> None:
    """Lets messages be written about a file whose name is not valid text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end(message: object, status: int) -> SystemExit:
    print(f"lqd: {message}", file=sys.stderr)
    return SystemExit(status)


def _shown(path: object) -> str:
    """A path for people; of a very long one, both ends."""
    text = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path)
    return text if len(text) <= 200 else f"{text[:80]}...{text[-80:]}"


def _forget_output() -> None:
    """Nothing more is written to stdout, also when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
