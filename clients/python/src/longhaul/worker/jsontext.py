"""JSON as the protocol has it: text of values, checks of what can be stored, times, and keys of steps."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from .errors import NotStorable

MAX_RESULT_BYTES = 4 << 20
"""Maximum size of a result: the server's."""

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_canonical = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
# An even number of backslashes before it: otherwise the text is the six characters themselves.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def text_of(value: Any) -> str:
    """JSON text of a value that is JSON already."""
    return _encoder.encode(value)


def jsonable(value: Any, where: str) -> Any:
    """The value as JSON types. Raises `NotStorable` that names `where`."""
    if value is None or type(value) in (str, bool, int):
        return value
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise NotStorable(where, str(error)) from error


def storable_text(value: Any, where: str) -> str:
    """JSON text of JSON types, checked as the server does. Raises `NotStorable` that names `where`."""
    try:
        text = _encoder.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise NotStorable(where, _reason(error)) from error
    if size > MAX_RESULT_BYTES:
        raise NotStorable(where, f"it has {size} bytes of JSON, and {MAX_RESULT_BYTES} are allowed")
    if "\\u0000" in text and _NUL.search(text):
        raise NotStorable(where, "it contains the character U+0000")
    return text


def time_of(text: str) -> datetime:
    """A time of the server, RFC 3339. Raises `ValueError`; Python 3.10 reads only a part of the format by itself."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"no time: {text[:50]!r}")
    whole, fraction, zone = found.groups()
    return datetime.fromisoformat(f"{whole}.{(fraction or '')[:6]:0<6}{'+00:00' if zone == 'Z' else zone}")


def step_key(name: str, arguments: Any, occurrence: Any) -> str:
    """Key of a step by the protocol's convention. `arguments` are JSON types."""
    try:
        content = _canonical.encode([name, arguments, occurrence]).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"an argument of step {name}", _reason(error)) from error
    return hashlib.sha256(content).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it contains a half of a surrogate pair"
    return str(error)
