"""Tools: functions whose calls inside an execution are steps with an effect."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from typing_extensions import ParamSpec

from .steps import EFFECTS, is_async

P = ParamSpec("P")
R = TypeVar("R")


class Tool(Generic[P, R]):
    """A function with an effect. Its call inside an execution is a step of the tool's name; outside it is a plain call.

    `read_only`: may be repeated freely. `idempotent`: is repeated with the same `ctx.idempotency_key` if an attempt
    died in it. `side_effect`: is not repeated if an attempt died in it; the function gets `OutcomeUnknown`.
    """

    def __init__(self, function: Callable[P, R], effect: str, name: str | None) -> None:
        if effect not in EFFECTS:
            raise ValueError(f"the effect of a tool is one of {', '.join(EFFECTS)}, not {effect}")
        functools.update_wrapper(self, function)
        self.function = function
        self.effect = effect
        self.name: str = name or str(getattr(function, "__name__", "tool"))
        if is_async(function):
            # Frameworks look at this to know whether they must await.
            mark = getattr(inspect, "markcoroutinefunction", None)
            if mark is not None:
                mark(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        from .context import Context, current

        ctx = current()
        if ctx is None:
            return self.function(*args, **kwargs)
        if isinstance(ctx, Context):
            if not is_async(self.function):
                raise TypeError(
                    f"{self.name} is a function without async: in an async task call it by "
                    f"`await ctx.step({self.name!r}, {self.name}, ...)`"
                )
            result: Any = ctx._step(self.name, self, args, kwargs)
        else:
            result = ctx._step(self.name, self, args, kwargs)
        value: R = result
        return value


class ToolDecorator(Protocol):
    """Makes a tool of a function."""

    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(function: Callable[P, R], /, *, effect: str = ..., name: str | None = ...) -> Tool[P, R]: ...


@overload
def tool(*, effect: str = ..., name: str | None = ...) -> ToolDecorator: ...


def tool(function: Any = None, /, *, effect: str = "side_effect", name: str | None = None) -> Any:
    """Makes a tool of a function, as a decorator with or without arguments."""
    if function is None:
        return lambda function: Tool(function, effect, name)
    return Tool(function, effect, name)
