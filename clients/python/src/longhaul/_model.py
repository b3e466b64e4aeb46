"""Answers of the API as objects: `Model` and the reading of JSON into it."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import Self, dataclass_transform

from ._encode import encode
from .errors import UnexpectedAnswer

T = TypeVar("T")
Reader = Callable[[Any], Any]

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


# Plain classes in the place of dataclasses: making 250 dataclasses takes 0.3 s of each program's start.
@dataclass_transform(kw_only_default=True)
class Model:
    """A part of an answer. A field that the answer does not have is None."""

    def __init__(self, **fields: Any) -> None:
        kind: Any = type(self)
        if unknown := fields.keys() - _hints(kind).keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        self.__dict__.update(fields)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Reads the JSON of an answer; raises `UnexpectedAnswer` if it is another thing."""
        return decode(cls, value)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the fields that are not None."""
        found: dict[str, Any] = encode({name.rstrip("_"): value for name, value in self._filled()})
        return found

    def _filled(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.__dict__.items() if value is not None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and type(self) is type(other) and self._filled() == other._filled()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._filled())
        return f"{type(self).__name__}({fields})"


class Mismatch(Exception):
    """A value is not of the expected kind. `path` leads to it, the innermost part first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: list[str] = []


def decode(kind: type[T], value: Any) -> T:
    """The JSON value as an object of this kind."""
    key: Any = kind
    try:
        read: T = _reader(key)(value)
    except Mismatch as mismatch:
        place = "".join(f"/{part}" for part in reversed(mismatch.path))
        raise UnexpectedAnswer(f"{place or 'the answer'} {mismatch.text}") from None
    except RecursionError:
        raise UnexpectedAnswer("the answer is nested too deeply") from None
    return read


def parse_time(text: str) -> datetime:
    """A time of RFC 3339. Digits beyond microseconds are dropped."""
    if found := _TIME.fullmatch(text):
        day, clock, fraction, zone = found.groups()
        zone = "+00:00" if zone in "Zz" else zone
        try:
            return datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0')[:6]:0<6}{zone}")
        except ValueError:
            pass
    raise Mismatch("is not a time")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if not name.startswith("__")}


@cache
def _reader(kind: Any) -> Reader:
    origin = get_origin(kind)
    if kind in (Any, object):
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _union(get_args(kind))
    if origin is Literal:
        # A newer server may send a value that this version does not know.
        return _plain(str)
    if origin is list:
        return _list(get_args(kind)[0])
    if origin is dict:
        return _dict(get_args(kind)[1])
    if kind is datetime:
        return lambda value: parse_time(value) if isinstance(value, str) else _fail("is not a time")
    if kind is float:
        return lambda value: value if _is_number(value) else _fail("is not a number")
    if isinstance(kind, type) and issubclass(kind, Model):
        return _model(kind)
    return _plain(kind)


def _plain(kind: type) -> Reader:
    names = {str: "a text", bool: "a boolean", int: "a whole number"}
    text = f"is not {names.get(kind, kind.__name__)}"

    def read(value: Any) -> Any:
        if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
            return value
        return _fail(text)

    return read


def _list(kind: Any) -> Reader:
    item = _reader(kind)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            _fail("is not a list")
        return [_below(str(at), item, part) for at, part in enumerate(value)]

    return read


def _dict(kind: Any) -> Reader:
    item = _reader(kind)

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            _fail("is not an object")
        return {name: _below(name, item, part) for name, part in value.items()}

    return read


def _model(kind: Any) -> Reader:
    readers: dict[str, tuple[str, Reader]] | None = None
    required: set[str] = set()

    def read(value: Any) -> Model:
        nonlocal readers
        # A class may refer to itself, so its fields are looked at when it is first read.
        if readers is None:
            hints = _hints(kind)
            required.update(name.rstrip("_") for name in hints if not hasattr(kind, name))
            readers = {name.rstrip("_"): (name, _reader(hint)) for name, hint in hints.items()}
        if not isinstance(value, dict):
            _fail("is not an object")
        if missing := required - value.keys():
            _fail(f"has no `{min(missing)}`")
        made: Model = kind.__new__(kind)
        for wire, part in value.items():
            if wire in readers:
                name, reader = readers[wire]
                made.__dict__[name] = _below(wire, reader, part)
        return made

    return read


def _union(kinds: tuple[Any, ...]) -> Reader:
    is_optional = type(None) in kinds
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]

    def read(value: Any) -> Any:
        if value is None and is_optional:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except Mismatch:
                pass
        return readers[-1](value)

    return read


def _below(name: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except Mismatch as mismatch:
        mismatch.path.append(name)
        raise


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fail(text: str) -> Any:
    raise Mismatch(text)
