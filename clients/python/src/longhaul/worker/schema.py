"""Signature of a function as types: its input, its output, and their JSON schemas."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from .errors import NotStorable, Permanent
from .jsontext import jsonable


class Codec:
    """Converts values of one type to JSON types and back. Without a type, values stay as they are."""

    __slots__ = ("_adapter", "_plain")

    def __init__(self, kind: Any) -> None:
        self._plain = kind if kind in (str, int, float, bool, None, type(None)) else Any
        self._adapter: TypeAdapter[Any] | None = None
        if kind is not Any and kind is not inspect.Signature.empty:
            try:
                self._adapter = TypeAdapter(kind)
            except (PydanticSchemaGenerationError, PydanticUserError) as error:
                reason = str(error).split("\n", 1)[0]
                raise TypeError(f"the type {kind} has no JSON form: {reason}") from error

    def to_json(self, value: Any, where: str) -> Any:
        """The value as JSON types. Raises `NotStorable` that names `where`."""
        if value is None or type(value) in (str, bool, int):
            return value
        if self._adapter is None:
            return jsonable(value, where)
        try:
            # A value that is not of the type is written as what it is, and is refused when it is read.
            return self._adapter.dump_python(value, mode="json", warnings=False)
        except (ValueError, TypeError, RecursionError, AttributeError) as error:
            raise NotStorable(where, str(error)) from error

    def from_json(self, value: Any) -> Any:
        """The value of JSON types. Raises pydantic's `ValidationError`."""
        if self._adapter is None or type(value) is self._plain:
            return value
        return self._adapter.validate_python(value)

    def schema(self, mode: typing.Literal["validation", "serialization"]) -> dict[str, Any] | None:
        """JSON Schema; None without a type."""
        return None if self._adapter is None else self._adapter.json_schema(mode=mode)


class Signature:
    """Input and output of a task.

    One parameter that is a pydantic model, a dataclass or a TypedDict is the input itself. Otherwise the input is an
    object with the parameters by their names.
    """

    def __init__(self, function: Callable[..., Any], key: str, localns: Mapping[str, Any] | None = None) -> None:
        signature = inspect.signature(function)
        hints = type_hints(function, localns)
        parameters = list(signature.parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if self.takes_context:
            parameters = parameters[1:]
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{key}: *{parameter.name} has no schema; name each parameter")
        self._signature = signature.replace(parameters=parameters)
        self.names = [parameter.name for parameter in parameters]
        """Names of the parameters without the context."""
        self._positional = {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY}
        self._model: type[BaseModel] | None = None
        self.takes_input_itself = len(parameters) == 1 and _is_object(hints.get(self.names[0]))
        try:
            if self.takes_input_itself:
                self._input = Codec(hints[self.names[0]])
            else:
                self._model = _model(function.__name__, parameters, hints)
                self._input = Codec(self._model)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            raise TypeError(f"{key}: the input has no JSON form: {str(error).splitlines()[0]}") from error
        self.returns = hints.get("return", Any)
        try:
            self.output = Codec(self.returns)
        except TypeError as error:
            raise TypeError(f"{key}: the output has no JSON form: {error}") from error

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input."""
        schema = self._input.schema("validation")
        return schema or {"type": "object"}

    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the output; None if the function names no type."""
        return self.output.schema("serialization")

    def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The input as JSON types for a call of the function without its context."""
        bound = self._signature.bind(*args, **kwargs)
        where = "the input"
        if self.takes_input_itself:
            bound.apply_defaults()
            return self._input.to_json(bound.arguments[self.names[0]], where)
        assert self._model is not None
        try:
            model = self._model.model_validate(dict(bound.arguments))
            return model.model_dump(mode="json", by_alias=True)
        except (ValueError, TypeError, RecursionError) as error:
            if isinstance(error, ValidationError):
                raise TypeError(f"the input does not fit: {violations(error)}") from error
            raise NotStorable(where, str(error)) from error

    def arguments_of(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the function for an input of JSON types. Raises `Permanent` with the code `invalid_input`."""
        try:
            parsed = self._input.from_json(value)
        except ValidationError as error:
            raise Permanent("invalid_input", f"the input does not fit the function: {violations(error)}") from error
        if self._model is None:
            return [parsed], {}
        values = {name: getattr(parsed, _field(name)) for name in self.names}
        args = [values.pop(name) for name in self.names if name in self._positional]
        return args, values


def type_hints(function: Callable[..., Any], localns: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Annotations of a function, those in quotes too."""
    try:
        return typing.get_type_hints(function, localns=dict(localns or {}), include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{function.__qualname__}: the annotation {error.name!r} is not known where it is used"
        ) from None


def violations(error: ValidationError) -> str:
    """The first violations, without the values that caused them."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(str(part) for part in one['loc']) or 'the value'}: {one['msg']}" for one in found[:5]]
    return "; ".join(told)


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    from .context import Context
    from .sync_context import SyncContext

    return parameter.name == "ctx" or hints.get(parameter.name) in (Context, SyncContext)


def _is_object(kind: Any) -> bool:
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type):
        return False
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or typing_is_typeddict(kind)


def typing_is_typeddict(kind: Any) -> bool:
    """True if it is a TypedDict of `typing` or of `typing_extensions`."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__required_keys__")


# A name that pydantic keeps for itself gets a field with another name and the parameter's as its alias.
def _field(name: str) -> str:
    return f"p_{name}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _model(name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel]:
    from pydantic import Field

    fields: dict[str, Any] = {}
    for parameter in parameters:
        default = ... if parameter.default is parameter.empty else parameter.default
        field = Field(default, alias=parameter.name) if _field(parameter.name) != parameter.name else default
        fields[_field(parameter.name)] = (hints.get(parameter.name, Any), field)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False, protected_namespaces=())
    return create_model(name, __config__=config, **fields)
