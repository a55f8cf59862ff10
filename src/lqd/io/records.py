"""Dataclasses from untrusted plain values, such as JSON from any source."""

import dataclasses
import pathlib
import types
import typing
from typing import Any

T = typing.TypeVar("T")
LIMIT = 2**53  # we never write larger whole numbers


def read(kind: type[T], values: Any, where: str = "") -> T:
    """The dataclass with these values, where names and types are those of its fields; a `ValueError` says what is not.

    Fields that have a default may be missing. What the values mean is for the class itself to check.
    """
    if not isinstance(values, dict):
        raise _wrong(where, "names and values", values)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind)) if field.init}
    if unknown := sorted(map(str, values.keys() - fields.keys())):
        raise ValueError(f"{where or kind.__name__} has no {unknown[0]!r:.80}")
    needed = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if missing := sorted(needed - values.keys()):
        raise ValueError(f"{where or kind.__name__} lacks {missing[0]!r}")
    hints, prefix = typing.get_type_hints(kind), f"{where}." if where else ""
    return kind(**{name: value_of(hints[name], value, f"{prefix}{name}") for name, value in values.items()})


def value_of(hint: Any, value: Any, where: str) -> Any:
    """A value as its type hint wants it: numbers, text, paths, None, tuples, names with values, and dataclasses."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        others = [arg for arg in args if arg is not type(None)]
        for arg in others[:-1]:
            try:
                return value_of(arg, value, where)
            except ValueError:
                continue
        return value_of(others[-1], value, where)
    if dataclasses.is_dataclass(hint):
        return read(typing.cast(type, hint), value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, "names and values", value)
        return {name: value_of(args[1], item, f"{where}.{name:.80}") for name, item in value.items()}
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise _wrong(where, "a list", value)
        return origin(value_of(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if hint is float:
        if isinstance(value, str) and value in ("inf", "-inf", "nan"):  # as `manifest.write` has them
            return float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e308:
            raise _wrong(where, "a number", value)
        return float(value)
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LIMIT:
            raise _wrong(where, "a whole number", value)
        return value
    if hint is pathlib.Path:
        return pathlib.Path(value_of(str, value, where))
    if not isinstance(value, hint):
        raise _wrong(where, {str: "text", bool: "true or false"}.get(hint, hint.__name__), value)
    return value


def _wrong(where: str, wanted: str, value: Any) -> ValueError:
    return ValueError(f"{where or 'it'} must be {wanted}, got {value!r:.80}")
