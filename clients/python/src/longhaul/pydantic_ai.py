"""Durable agents of pydantic-ai: `Agent(…, capabilities=[LonghaulDurability()])` inside a task of a worker.

Each model request and each call of a tool is a step of the execution. An attempt after a crash takes from the journal
what is recorded, and goes on at the first operation that is not. Outside of a worker the agent runs as without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetKind,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import ToolsetTool
from typing_extensions import TypedDict

from .worker.context import Context, current
from .worker.errors import NotStorable

Effect = Literal["read_only", "idempotent", "side_effect"]


class StepConfig(TypedDict, total=False):
    """What a step may do, by `metadata={"longhaul": StepConfig(effect=…)}` of a tool."""

    effect: Effect
    """`side_effect`: a call that an attempt may have made before it died is not made again; the execution fails with
    `outcome_unknown`, or the function catches it. Without it a call is made again."""


_runs: WeakKeyDictionary[Context, int] = WeakKeyDictionary()
"""Number of agent runs that the function has begun, for their ids. A replay begins them in the same order."""


def _context() -> Context | None:
    """The context of the task that runs, if a worker runs it."""
    ctx = current()
    if ctx is None or isinstance(ctx, Context):
        return ctx
    raise UserError("a durable agent runs in an async task: make the function `async def`, and await agent.run(…)")


class LonghaulDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes the runs of an agent durable inside a task of a Longhaul worker.

    Names of steps contain the agent's `name`, which must not change while executions are under way.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Longhaul",
        durable_unit_noun="step",
        durable_container_noun="execution",
        codec=JSON_CODEC,
        serialization_failure=lambda error: NotStorable("a result of an agent's operation", str(error)),
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="longhaul",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        mcp_step: StepConfig | None = None,
        tool_step: StepConfig | None = None,
    ) -> None:
        """`models` are further models by the keys that runs use; `event_stream_handler` sees the events of models live
        and those of tools in steps of their own; `mcp_step` and `tool_step` are the defaults of tools.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._mcp_step = _checked(mcp_step or {})
        self._tool_step = _checked(tool_step or {})

    @property
    def in_durable_context(self) -> bool:
        """Whether a worker runs this code."""
        return _context() is not None

    def get_default_run_id(self) -> str | None:
        """An id that a replay gives to the same run."""
        ctx = _context()
        if ctx is None:
            return None
        number = _runs.get(ctx, 0)
        _runs[ctx] = number + 1
        return f"{ctx.execution_id}:{number}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """An id that a replay gives to the same conversation."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """The time at which the run first began: its timeout counts from then."""
        ctx = _context()
        if ctx is None:
            return None

        def now(_: str) -> str:
            return datetime.now(timezone.utc).isoformat()

        return datetime.fromisoformat(await ctx.step(f"{self.name}__run_start_time", now, run_id))

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepConfig]:
        """Runs each operation as a step."""

        def tool_config(
            operation_id: DurableOperationId, tool: object | None, tool_name: str
        ) -> StepConfig | Literal[False]:
            if not isinstance(operation_id, (ToolsetCallToolId, ToolsetValidateToolArgumentsId)):
                return {}
            base = self._toolset_base_config(operation_id.toolset_kind)
            resolve = self._build_resolve_tool_config(base)
            return cast("StepConfig | Literal[False]", resolve(cast("ToolsetTool[Any] | None", tool), tool_name))

        return _Steps(
            agent_name=self.name,
            default_model_id=self.default_model_id,
            config=RoleBasedOperationConfig[StepConfig](
                model={}, event={}, capability={}, tool=self._tool_step, resolve_tool=tool_config
            ),
        )

    def _toolset_base_config(self, kind: ToolsetKind) -> StepConfig:
        return self._mcp_step if kind == "mcp" else self._tool_step

    def _normalize_unit_config(self, config: Any) -> Any:
        return _checked(config)


class _Steps(JournalCallableOperationBackend[StepConfig]):
    """Operations as steps, found again by name, content and occurrence."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepConfig,
    ) -> object:
        """Runs the body once; its result is JSON."""
        ctx = _context()
        if ctx is None:
            return await body()
        content = _content(operation_id, cache_key)
        # Validation of arguments has no effect, whatever the tool has.
        effect = config.get("effect") if isinstance(operation_id, ToolsetCallToolId) else None

        async def run(_: object) -> Any:
            return await body()

        if effect is None:
            return await ctx.step(name, run, content)
        return await ctx.tool(effect=effect, name=name)(run)(content)


def _content(operation_id: DurableOperationId, cache_key: Sequence[object]) -> dict[str, object]:
    """What tells operations of one name apart, beside the order in which they began.

    Calls of tools are told apart by the id that the model gave them, so that the order of parallel calls does not
    matter. Requests are not told apart by their messages, which bear the times of the attempt.
    """
    context = next((part for part in cache_key if isinstance(part, RunContext)), None)
    run = context.run_id if context is not None else None
    if isinstance(operation_id, (ToolsetCallToolId, ToolsetValidateToolArgumentsId)):
        call = context.tool_call_id if context is not None else None
        return {"run": run, "tool": str(cache_key[0]), "call": call}
    if isinstance(operation_id, EventStreamHandlerId):
        event = cache_key[0]
        call = getattr(event, "tool_call_id", None) or getattr(getattr(event, "part", None), "tool_call_id", None)
        return {"event": str(getattr(event, "event_kind", "")), "call": call}
    # Any other kind, those of later releases too: a run's own operations are counted for themselves.
    return {"run": run}


def _checked(config: Mapping[str, Any]) -> StepConfig:
    for key, value in config.items():
        if key != "effect" or value not in ("read_only", "idempotent", "side_effect"):
            raise UserError(
                f"longhaul config {key}={value!r} of a tool is unknown; effect is read_only, idempotent or side_effect"
            )
    return cast(StepConfig, dict(config))
