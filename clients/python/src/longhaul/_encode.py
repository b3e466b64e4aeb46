"""Values of a program as the JSON of a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from .errors import NaiveTime


def encode(value: Any, path: str = "") -> Any:
    """The value with times, ids, models and dataclasses as JSON. Other values are left as they are."""
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum):
        return value
    if isinstance(value, Mapping):
        return {name: encode(part, f"{path}/{name}") for name, part in value.items()}
    if isinstance(value, (Sequence, AbstractSet)) and not isinstance(value, (bytes, bytearray)):
        return [encode(part, f"{path}/{at}") for at, part in enumerate(value)]
    if isinstance(value, datetime):
        return time_text(value, path)
    if isinstance(value, (date, UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return encode(value.value, path)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    # A model of pydantic.
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return encode(dataclasses.asdict(value), path)
    raise TypeError(f"{path or 'the value'} is a {type(value).__name__}, which JSON does not have")


def time_text(value: datetime, path: str) -> str:
    """The time in RFC 3339; one without a time zone is refused."""
    if value.utcoffset() is None:
        raise NaiveTime(path.lstrip("/").replace("/", "."), value)
    return value.isoformat()
