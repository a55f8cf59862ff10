"""What `--help` says of each flag: its text, its type and its default, as people write them.

A command's flags are its dataclass's fields. A field that is a dataclass itself is a group of flags, with a heading of
its own in the help; on the command line its flags stand beside all others.
"""

import ast
import contextlib
import contextvars
import dataclasses
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import tyro

WIDTH = 78  # of a description: a terminal has 80 columns
Defaults = Callable[[str], str | None]

_defaults: contextvars.ContextVar[Defaults] = contextvars.ContextVar("defaults", default=lambda name: None)


def described(command: type) -> type:
    """The command, with everything that its help says about its flags."""
    _describe(command)
    return command


class Typed:
    """A command that knows which flags were typed: tyro does not say whether a value is given or the default."""

    typed: typing.ClassVar[frozenset[str]] = frozenset()

    def remember(self, words: Sequence[str]) -> None:
        names = {word.partition("=")[0].replace("_", "-") for word in words}
        object.__setattr__(self, "typed", frozenset(name for name in names if name.startswith("--")))

    def is_typed(self, name: str) -> bool:
        flag = name.replace("_", "-")
        return not self.typed.isdisjoint({f"--{flag}", f"--no-{flag}"})


@contextlib.contextmanager
def with_defaults(defaults: Defaults) -> Iterator[None]:
    """Within it the help shows these defaults, by the names of fields; where one is None, the field's own."""
    token = _defaults.set(defaults)
    try:
        yield
    finally:
        _defaults.reset(token)


def flat(command: Any) -> Iterator[tuple[Any, dataclasses.Field]]:
    """All flags of a command, or of its class: each field with what it is a field of."""
    for field in dataclasses.fields(command):
        if dataclasses.is_dataclass(field.type):
            yield from flat(field.type if isinstance(command, type) else getattr(command, field.name))
        elif field.init:
            yield command, field


def texts(kind: type) -> dict[str, str]:
    """The text under each field, in one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = " ".join(_text(below).split())
    return found


def _text(node: ast.stmt) -> str:
    """A statement that is a string; of any other nothing."""
    value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return value if isinstance(value, str) else ""


def summary(command: type) -> str:
    """The first paragraph of its description."""
    return " ".join(inspect.cleandoc(command.__doc__ or "").split("\n\n")[0].split())


def description(command: type) -> str:
    """All of it, in lines that fit a terminal. They are indented, or tyro would join them."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    indent = "  "
    return "\n".join(
        textwrap.fill(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)
        for text in paragraphs
    )


@functools.cache
def _describe(kind: type) -> None:
    found, hints = texts(kind), typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            _describe(typing.cast(type, hint))
        elif field.init:
            marks = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
            shown = tyro.conf.arg(
                help=found.get(field.name, ""),
                metavar=_place(field) if tyro.conf.Positional in marks else _metavar(hint),
                help_behavior_hint=functools.partial(_hint, field),
            )
            kind.__annotations__[field.name] = Annotated[(hint, shown, *marks)]


def _place(field: dataclasses.Field) -> str:
    """A positional argument in the usage: FOLDER, or [FOLDER] where it may be missing."""
    name = field.name.upper()
    return name if field.default is dataclasses.MISSING else f"[{name}]"


def _metavar(hint: Any) -> str | None:
    """INT for `int | None`, [STR ...] for `tuple[str, ...]`; tyro's own for a switch."""
    if typing.get_origin(hint) is Annotated:
        return _metavar(typing.get_args(hint)[0])
    if hint is bool:
        return None
    if type(None) in typing.get_args(hint):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    if typing.get_origin(hint) is tuple:
        return f"[{_name(typing.get_args(hint)[0])} ...]"
    return _name(hint)


def _name(kind: type) -> str:
    return kind.__name__.upper()


def _hint(field: dataclasses.Field, label: str) -> str:
    """The default in brackets. None and "not given" say nothing: what happens then is in the text."""
    given = _defaults.get()(field.name)
    if given is not None:
        return given and f"({given})"
    if field.default is dataclasses.MISSING:
        return "(required)"
    if field.default is None or field.default is False or field.default == ():
        return ""
    if field.default is True:
        return f"(default: --{field.name.replace('_', '-')})"
    return f"(default: {label})"
