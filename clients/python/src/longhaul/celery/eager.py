"""Calls that run in this process: `apply`, and all calls with `task_always_eager`."""

from __future__ import annotations

import asyncio
import inspect
import traceback as tracebacks
from typing import Any

from .canvas import Signature, as_list, chain, chord, chunks, group, xmap, xstarmap
from .exceptions import ChordError, Ignore, ImproperlyConfigured, Reject, Retry
from .result import FAILURE, SUCCESS, EagerResult, GroupResult, Result
from .spec import check_call_options
from .task import Replaced, Request, Running, Task, reset_running, set_running
from .utils import uuid


def apply_task(task: Task, args: list[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> EagerResult:
    """Runs a task with its retries, without their delays."""
    check_call_options(task.name, options, ("throw", *_known()))
    task_id = str(options.get("task_id") or uuid())
    retries = 0
    while True:
        request = Request(
            id=task_id,
            task=task.name,
            args=args,
            kwargs=kwargs,
            retries=retries,
            headers=dict(options.get("headers") or {}),
            is_eager=True,
            called_directly=False,
        )
        token = set_running(Running(task, request))
        try:
            value = finish(task._call(args, kwargs))
            result = EagerResult(task_id, value, SUCCESS, app=task.app)
            break
        except Replaced as replaced:
            inner = apply_canvas(replaced.call)
            value = inner.get()
            result = EagerResult(task_id, value, SUCCESS, app=task.app)
            break
        except Ignore:
            result = EagerResult(task_id, None, SUCCESS, app=task.app)
            break
        except Exception as error:
            retry = error if isinstance(error, Retry) else task.retry_for(error, retries)
            if retry is None and isinstance(error, Reject) and error.requeue:
                retry = Retry("requeued")
            if retry is not None:
                retries += 1
                continue
            if options.get("throw") or task.app.conf.task_eager_propagates:
                raise
            result = EagerResult(task_id, error, FAILURE, tracebacks.format_exc(), task.app)
            break
        finally:
            reset_running(token)
    _callbacks(task, result, request, options)
    return result


def finish(value: Any) -> Any:
    """The value; of an async function after it has run."""
    if not inspect.iscoroutine(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(value)
    value.close()
    raise ImproperlyConfigured("an async task cannot be applied inside an event loop; await the function itself")


def _callbacks(task: Task, result: EagerResult, request: Request, options: dict[str, Any]) -> None:
    if result.state == SUCCESS:
        for link in as_list(options.get("link")):
            result._callbacks.append(apply_canvas(Signature.from_dict(link, task.app).clone((result.result,))))
        return
    for link in as_list(options.get("link_error")):
        call = Signature.from_dict(link, task.app)
        errback = task.app.task_named(call.task)
        if takes_failure(errback):
            errback(request, result.result, result.traceback)
        else:
            apply_canvas(call.clone((result.id,)))


def takes_failure(task: Task) -> bool:
    """Whether an error callback takes the request, the exception and the traceback, and not only the id."""
    if task.bind:
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = task.signature_of_function.parameters.values()
    return sum(one.kind in kinds for one in parameters) > 1 or any(
        one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters
    )


def apply_canvas(call: Signature, parent: Result | None = None) -> Any:
    """Runs a signature here."""
    result: Any
    if isinstance(call, chunks):
        call = call.group()
    if isinstance(call, chain):
        result = parent
        for number, step in enumerate(call.tasks):
            made = step.clone((_value(result),)) if number else step
            result = apply_canvas(made, result)
        return result
    if isinstance(call, group):
        return GroupResult(uuid(), [apply_canvas(one, parent) for one in call.tasks], call.app, parent)
    if isinstance(call, chord):
        header = apply_canvas(call.header, parent)
        if call.body is None:
            raise ImproperlyConfigured("a chord needs a body")
        failed = next((one for one in header.results if one.failed()), None)
        if failed is not None:
            return EagerResult(uuid(), ChordError(f"Dependency {failed.id} raised {failed.result!r}"), FAILURE)
        return apply_canvas(call.body.clone((header.get(),)), header)
    if isinstance(call, xmap):
        task = call.app.task_named(call.kwargs["task"]["task"])
        star = isinstance(call, xstarmap)
        result = EagerResult(uuid(), [finish(task(*one) if star else task(one)) for one in call.kwargs["it"]], SUCCESS)
    else:
        result = apply_task(call.app.task_named(call.task), list(call.args), call.kwargs, call.options)
    result.parent = parent
    return result


def _value(result: Any) -> Any:
    return result.get()


def _known() -> tuple[str, ...]:
    from .spec import _SIGNATURE_OPTIONS

    return _SIGNATURE_OPTIONS
