"""`app.control`: commands for tasks and workers, and what they are doing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .exceptions import NotRegistered, Unsupported
from .result import AsyncResult

if TYPE_CHECKING:
    from .app import Celery

_ADVICE = {
    "add_consumer": "start a worker with --queues",
    "autoscale": "`longhaul-worker --concurrency`",
    "broadcast": "there are no commands between workers",
    "cancel_consumer": "start a worker with --queues",
    "disable_events": "events are always kept",
    "election": "",
    "enable_events": "events are always kept",
    "heartbeat": "workers renew their leases",
    "pool_grow": "`longhaul-worker --concurrency`",
    "pool_restart": "restart the worker: what it runs goes on elsewhere",
    "pool_shrink": "`longhaul-worker --concurrency`",
    "rate_limit": "set the option of the task and restart the workers",
    "revoke_by_stamped_headers": "list the executions by metadata, and cancel them",
    "terminate": "use revoke(terminate=True)",
    "time_limit": "set the option of the task and restart the workers",
}


class Inspect:
    """What workers and tasks are doing, from the API. Needs the scope `admin` for what is about workers."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def active(self) -> dict[str, list[dict[str, Any]]]:
        """Tasks that run, by worker."""
        found: dict[str, list[dict[str, Any]]] = {}
        for one in self._app.api.executions(status="IN_PROGRESS"):
            if one.get("worker_id") and one.get("wait_reason") is None:
                found.setdefault(one["worker_id"], []).append(_task(one))
        return found

    def scheduled(self) -> dict[str, list[dict[str, Any]]]:
        """Tasks with a countdown or an eta that has not come."""
        return self._waiting("scheduled")

    def reserved(self) -> dict[str, list[dict[str, Any]]]:
        """Tasks that wait for a worker. None is reserved for a particular one."""
        return self._waiting("worker")

    def _waiting(self, reason: str) -> dict[str, list[dict[str, Any]]]:
        found = [_task(one) for one in self._app.api.executions(wait_reason=reason)]
        return {"queue": found} if found else {}

    def registered(self) -> list[str]:
        """Names of the tasks of the app in this process."""
        return sorted(self._app.tasks)

    def query_task(self, *ids: str) -> dict[str, dict[str, Any]]:
        """Tasks by their ids; unknown ones are left out."""
        found: dict[str, dict[str, Any]] = {}
        for id in ids:
            execution = AsyncResult(id, self._app)._find()
            if execution is not None:
                found[id] = {**_task(execution), "state": AsyncResult(id, self._app).state}
        return found

    def ping(self) -> dict[str, dict[str, str]]:
        """Workers that renew their leases."""
        return {worker["id"]: {"ok": "pong"} for worker in self._workers()}

    def stats(self) -> dict[str, dict[str, Any]]:
        """Workers with what the API tells of them."""
        return {worker["id"]: worker for worker in self._workers()}

    def active_queues(self) -> dict[str, list[dict[str, str]]]:
        """Queues that the workers serve."""
        return {worker["id"]: [{"name": queue} for queue in worker["queues"]] for worker in self._workers()}

    def _workers(self) -> list[dict[str, Any]]:
        workers = self._app.api.pages("/v1/workers", "workers", "after", "next_after", {})
        return [worker for worker in workers if worker.get("dead_at") is None]

    def __getattr__(self, name: str) -> Any:
        if name in ("clock", "conf", "hello", "memdump", "memsample", "objgraph", "report", "revoked"):
            raise Unsupported(f"inspect().{name} is not supported")
        raise AttributeError(name)


class Control:
    """Commands."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def inspect(self, destination: Any = None, **options: Any) -> Inspect:
        """What workers and tasks are doing."""
        if destination is not None:
            raise Unsupported("inspect of particular workers is not supported; the answers are by worker")
        return Inspect(self._app)

    def ping(self, **_: Any) -> list[dict[str, dict[str, str]]]:
        """Workers that renew their leases."""
        return [{worker: answer} for worker, answer in Inspect(self._app).ping().items()]

    def revoke(self, task_id: str | Iterable[str], terminate: bool = False, **unsupported: Any) -> None:
        """As `AsyncResult.revoke`, for one task or several. Unknown ids are passed over."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            try:
                AsyncResult(str(id), self._app).revoke(terminate, **unsupported)
            except NotRegistered:
                continue

    def purge(self) -> int:
        """Cancels the tasks of the app that have not begun, and returns their number."""
        count = 0
        for name in [*self._app.tasks, self._app.canvas_definition]:
            for one in list(self._app.api.executions(status="PENDING", definition=name)):
                self._app.client.cancel(one["id"])
                count += 1
        return count

    discard_all = purge

    def shutdown(self, destination: Iterable[str] | None = None, **_: Any) -> None:
        """Drains workers, all of them without `destination`: what they run goes on elsewhere."""
        for worker in destination or list(Inspect(self._app).ping()):
            self._app.api.request("POST", f"/v1/workers/{worker}/drain")

    def __getattr__(self, name: str) -> Any:
        if name in _ADVICE:
            raise Unsupported(f"control.{name} is not supported{': ' if _ADVICE[name] else ''}{_ADVICE[name]}")
        raise AttributeError(name)


def _task(execution: dict[str, Any]) -> dict[str, Any]:
    metadata = execution["metadata"]
    return {
        "id": metadata.get("task_id") or execution["id"],
        "name": execution["definition"]["key"],
        "queue": execution["queue"],
        "priority": execution["priority"],
        "execution_id": execution["id"],
        "eta": execution.get("wait_until"),
    }
