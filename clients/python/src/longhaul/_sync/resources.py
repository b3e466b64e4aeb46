# Written by `python3 clients/generate` from docs/openapi.json: do not edit.
"""The operations of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from .. import params
from .. import types as t
from .._request import Request, in_path, new_key
from ..event_stream import ServerSentEvent
from .pages import Pages
from .streams import ExecutionStreams, Resource, SessionStreams
from .transport import Transport


class Executions(ExecutionStreams):
    def submit(
        self,
        *,
        agent: str | None = None,
        budget: params.BudgetSpec | None = None,
        deadline_seconds: int | None = None,
        definition: str | None = None,
        input: Any = None,
        metadata: Mapping[str, Any] | None = None,
        priority: int | None = None,
        queue: str | None = None,
        run_at: datetime | None = None,
        tools: Sequence[params.CallerToolSpec] | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
    ) -> t.Execution:
        """Submits an execution. When this answers, the execution is committed.

        - `agent`: Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
        - `budget`: Budget of the execution and everything it starts; the definition's or the agent's when absent.
        - `deadline_seconds`: Maximum lifetime in seconds, waits included; at most 30 days. The definition's when
          absent.
        - `definition`: Definition to run; exactly one of `definition` and `agent`.
        - `input`: Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent,
          if nothing is required. Prompts and tools see it with the schema's defaults. A number may have 128 digits;
          none is rounded.
        - `metadata`: Metadata for filters, at most 16 KiB.
        - `priority`: Priority; higher first.
        - `queue`: Queue.
        - `run_at`: Earliest start.
        - `tools`: Further tools, whose calls the caller runs; see docs/guide/caller-tools.md.
        - `version`: Version of the definition or agent; the newest when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        - `wait_seconds`: Seconds to hold the answer until the execution ends, at most 60.
        """
        request = Request(
            "POST",
            "/v1/executions",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={
                "agent": agent,
                "budget": budget,
                "deadline_seconds": deadline_seconds,
                "definition": definition,
                "input": input,
                "metadata": metadata,
                "priority": priority,
                "queue": queue,
                "run_at": run_at,
                "tools": tools,
                "version": version,
            },
            wait_seconds=wait_seconds,
        )
        return self._transport.call(request, t.Execution)

    def submit_batch(
        self, *, executions: Sequence[params.SubmitBody], idempotency_key: str | None = None
    ) -> t.BatchAnswer:
        """Submits up to 1,000 executions.

        An item that is refused does not stop the others. Under an `Idempotency-Key`, each item without a key of its
        own has that key with its number.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/executions/batch",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"executions": executions},
        )
        return self._transport.call(request, t.BatchAnswer)

    def list(
        self,
        *,
        status: t.ExecutionStatus | None = None,
        wait_reason: t.WaitReason | None = None,
        agent: str | None = None,
        definition: str | None = None,
        failure_code: str | None = None,
        queue: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        parent: str | None = None,
        root: str | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Pages[t.Execution]:
        """Lists executions, newest first.

        Filters combine with "and". `metadata.<key>=<text>` selects executions whose metadata has this string at
        `<key>`; several of these combine. One request examines a bounded number of executions: a page may have fewer
        than `limit`, even none, and still have a next one.

        - `status`: In this state
        - `wait_reason`: That wait for this reason
        - `agent`: By agent key
        - `definition`: By definition key
        - `failure_code`: By failure code
        - `queue`: By queue
        - `created_after`: Inclusive
        - `created_before`: Exclusive
        - `parent`: Started by this execution
        - `root`: Of the tree whose topmost execution this is, itself included
        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `limit`: 1 to 200; 50 when absent
        - `cursor`: `next_cursor` of the page before
        - `metadata`: Texts that the metadata has at these keys.
        """
        request = Request(
            "GET",
            "/v1/executions",
            query={
                "status": status,
                "wait_reason": wait_reason,
                "agent": agent,
                "definition": definition,
                "failure_code": failure_code,
                "queue": queue,
                "created_after": created_after,
                "created_before": created_before,
                "parent": parent,
                "root": root,
                "org_id": org_id,
                "group_id": group_id,
                "all_tenants": all_tenants,
                "limit": limit,
                "cursor": cursor,
            },
            metadata=metadata,
        )
        return Pages(self._transport, request, t.Execution, "executions", "cursor")

    def get(self, execution_id: str) -> t.Execution:
        """Returns one execution in full."""
        request = Request("GET", f"/v1/executions/{in_path(execution_id)}")
        return self._transport.call(request, t.Execution)

    def cancel(self, execution_id: str, *, idempotency_key: str | None = None) -> t.Execution:
        """Ends an execution and everything it started as FAILED `cancelled`.

        It ends at once if no worker holds it, otherwise within seconds. Idempotent: an execution that was cancelled
        before is returned as it stands; one that ended in another way is a conflict.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/cancel",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.Execution)

    def retry(
        self,
        execution_id: str,
        *,
        from_scratch: bool | None = None,
        version: str | None = None,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
    ) -> t.Execution:
        """Retries a FAILED execution as a new one with the same input.

        The new execution continues where the FAILED one ended, unless the body says otherwise.

        - `from_scratch`: If true, asks everything again; otherwise keeps the answers from before the failure.
        - `version`: `latest`: in the newest version; otherwise the same
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        - `wait_seconds`: Seconds to hold the answer until the execution ends, at most 60.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/retry",
            query={"version": version},
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"from_scratch": from_scratch},
            wait_seconds=wait_seconds,
        )
        return self._transport.call(request, t.Execution)

    def fork(
        self,
        execution_id: str,
        *,
        from_step: int,
        agent: str | None = None,
        budget: params.BudgetSpec | None = None,
        input: Any = None,
        model: str | Mapping[str, Any] | None = None,
        prompt: str | None = None,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
    ) -> t.Execution:
        """Starts an execution that shares what another recorded before `from_step`.

        Shared steps are not repeated. From `from_step` on the fork continues by itself, with another agent, prompt,
        model or input if the body names one.

        - `from_step`: First step that is not shared: it and all after it are done again. 1: nothing is shared.
        - `agent`: Another agent, in its newest version: its prompt, model, tools and policy hold from the fork on. The
          origin's overrides of its own agent are dropped, but for the tools that its caller runs.
        - `budget`: Another budget; when absent, a new one with the origin's caps.
        - `input`: Another input, valid against the definition's input schema.
        - `model`: Another model: its name, or an object whose fields replace those of the agent's `model`.
        - `prompt`: Another system prompt, a minijinja template over `input`. Needs the scope `definitions:write`, and
          also `admin` if all tenants share the agent and it does not set `fork_overrides`. The same holds for `model`.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        - `wait_seconds`: Seconds to hold the answer until the execution ends, at most 60.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/fork",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"from_step": from_step},
            optional={"agent": agent, "budget": budget, "input": input, "model": model, "prompt": prompt},
            wait_seconds=wait_seconds,
        )
        return self._transport.call(request, t.Execution)

    def waiting(self, execution_id: str) -> t.WaitingView:
        """Explains what an execution waits for: since when, until when, its place in line and an estimate."""
        request = Request("GET", f"/v1/executions/{in_path(execution_id)}/waiting")
        return self._transport.call(request, t.WaitingView)

    def list_events(
        self, execution_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Pages[t.EventView]:
        """Lists or streams the events of an execution.

        With `Accept: text/event-stream` the answer is a stream that ends with the execution, otherwise a page. In
        the stream, `event` is the kind, `id` the number and `data` an `EventView`; the event `resync` has a
        `ResyncEvent`. A comment follows after 15 s of silence, and `retry` is 1000.

        - `after`: The same, for those who cannot set headers
        - `limit`: Of a page: 1 to 1000; 200 when absent
        """
        request = Request(
            "GET",
            f"/v1/executions/{in_path(execution_id)}/events",
            query={"after": after, "limit": limit},
        )
        return Pages(self._transport, request, t.EventView, "events", "after", is_by_seq=True)

    def steps(
        self,
        execution_id: str,
        *,
        after: int | None = None,
        limit: int | None = None,
        include: str | None = None,
    ) -> Pages[t.StepView]:
        """Lists the recorded steps (the journal) of an execution.

        - `after`: Steps after this number
        - `limit`: 1 to 500, or to 50 with bodies; 50 when absent
        - `include`: `body`: with bodies and messages
        """
        request = Request(
            "GET",
            f"/v1/executions/{in_path(execution_id)}/steps",
            query={"after": after, "limit": limit, "include": include},
        )
        return Pages(self._transport, request, t.StepView, "steps", "after")

    def attempts(
        self, execution_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Pages[t.AttemptView]:
        """Lists the ended attempts of an execution.

        - `after`: Attempts after this number
        - `limit`: 1 to 200; 100 when absent
        """
        request = Request(
            "GET",
            f"/v1/executions/{in_path(execution_id)}/attempts",
            query={"after": after, "limit": limit},
        )
        return Pages(self._transport, request, t.AttemptView, "attempts", "after")

    def ledger(self, execution_id: str, *, after: int | None = None) -> Pages[t.LedgerEntryView]:
        """Lists the calls of an execution that may have changed something, with the state of each.

        - `after`: Calls after this step
        """
        request = Request("GET", f"/v1/executions/{in_path(execution_id)}/ledger", query={"after": after})
        return Pages(self._transport, request, t.LedgerEntryView, "entries", "after")

    def post_tool_results(
        self, execution_id: str, *, results: Sequence[params.ToolResult], idempotency_key: str | None = None
    ) -> t.ToolResultsView:
        """Posts results of calls that the caller runs, some or all, in any order.

        If one result is refused, nothing is stored. The same result may be posted again. The execution goes on when
        a result arrives; it waits again for the calls that have none.

        - `results`: In any order; some of the pending calls or all.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/tool-results",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"results": results},
        )
        return self._transport.call(request, t.ToolResultsView)

    def raise_budget(
        self,
        execution_id: str,
        *,
        max_cost_usd: params.Usd | None = None,
        max_model_calls: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.BudgetView:
        """Sets the caps of the budget of the execution's whole tree.

        Wakes executions that wait for the budget and now fit.

        - `max_cost_usd`: US dollars; a number or a string.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/budget",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"max_cost_usd": max_cost_usd, "max_model_calls": max_model_calls, "max_tokens": max_tokens},
        )
        return self._transport.call(request, t.BudgetView)

    def erase(self, execution_id: str) -> t.Erased:
        """Erases input, output, messages, results, metadata and failure texts of an ended execution and of its
        descendants.

        Of a message of a session, the transcript keeps a tombstone; summaries that stand for it are erased with it.
        Ids, times, states, codes, counts, costs and the ledger of effects stay. Retries and forks of it are
        executions of their own, with their own copies. An erased execution can be neither retried nor forked.
        Idempotent.
        """
        request = Request("DELETE", f"/v1/executions/{in_path(execution_id)}/content")
        return self._transport.call(request, t.Erased)

    def send_signal(
        self, execution_id: str, *, name: str, payload: Any = None, idempotency_key: str | None = None
    ) -> t.SentSignal:
        """Sends a signal to an execution whose code may wait for one of that name, now or later.

        A signal is kept in order with others of its name, and wakes an execution that waits.

        - `name`: Name that the execution waits for.
        - `payload`: Any JSON; null when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/executions/{in_path(execution_id)}/signals",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"name": name},
            optional={"payload": payload},
        )
        return self._transport.call(request, t.SentSignal)

    def artifacts(self, execution_id: str) -> Pages[t.Artifact]:
        """Lists the files that an execution's calls left. They live as long as the execution."""
        request = Request("GET", f"/v1/executions/{in_path(execution_id)}/artifacts")
        return Pages(self._transport, request, t.Artifact, "artifacts", None)

    def download_artifact(self, execution_id: str, file: str) -> bytes:
        """Downloads a file of an execution by its id, or the latest of its name; always as an attachment."""
        request = Request("GET", f"/v1/executions/{in_path(execution_id)}/artifacts/{in_path(file)}")
        return self._transport.call_bytes(request)


class Approvals(Resource):
    def list(
        self,
        *,
        state: t.ApprovalState | None = None,
        execution: str | None = None,
        agent: str | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Pages[t.Approval]:
        """Lists calls that wait, or waited, for a person's decision; newest first.

        - `state`: In this state
        - `execution`: Of this execution
        - `agent`: By agent key
        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `limit`: 1 to 200; 50 when absent
        - `cursor`: `next_cursor` of the page before
        """
        request = Request(
            "GET",
            "/v1/approvals",
            query={
                "state": state,
                "execution": execution,
                "agent": agent,
                "org_id": org_id,
                "group_id": group_id,
                "all_tenants": all_tenants,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return Pages(self._transport, request, t.Approval, "approvals", "cursor")

    def get(self, approval_id: str) -> t.Approval:
        """Returns one approval with everything that a decider must see."""
        request = Request("GET", f"/v1/approvals/{in_path(approval_id)}")
        return self._transport.call(request, t.Approval)

    def decide(
        self,
        approval_id: str,
        *,
        decision: t.DecisionChoice,
        hash: str,
        arguments: Mapping[str, Any] | None = None,
        decided_by: str | None = None,
        reason: str | None = None,
        tool: str | None = None,
        idempotency_key: str | None = None,
    ) -> t.Approval:
        """Decides on a waiting call.

        A second decision is 409 and says who made the first.

        - `hash`: `hash` of the approval as the decider saw it.
        - `arguments`: Arguments of the call or of its replacement. `[redacted]`, where the approval shows it, keeps the
          value.
        - `decided_by`: Name of the person who decides; the key itself is always recorded.
        - `reason`: Reason; the model is told why a call was rejected.
        - `tool`: Tool that runs instead; the agent's policy is checked for it.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/approvals/{in_path(approval_id)}/decision",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"decision": decision, "hash": hash},
            optional={"arguments": arguments, "decided_by": decided_by, "reason": reason, "tool": tool},
        )
        return self._transport.call(request, t.Approval)


class Questions(Resource):
    def list(
        self,
        *,
        state: t.QuestionState | None = None,
        execution: str | None = None,
        agent: str | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Pages[t.Question]:
        """Lists questions of executions to their callers; newest first.

        - `state`: In this state
        - `execution`: Of this execution
        - `agent`: By agent key
        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `limit`: 1 to 200; 50 when absent
        - `cursor`: `next_cursor` of the page before
        """
        request = Request(
            "GET",
            "/v1/questions",
            query={
                "state": state,
                "execution": execution,
                "agent": agent,
                "org_id": org_id,
                "group_id": group_id,
                "all_tenants": all_tenants,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return Pages(self._transport, request, t.Question, "questions", "cursor")

    def get(self, question_id: str) -> t.Question:
        """Returns one question with the schema of its answer."""
        request = Request("GET", f"/v1/questions/{in_path(question_id)}")
        return self._transport.call(request, t.Question)

    def answer(
        self,
        question_id: str,
        *,
        answer: Any,
        answered_by: str | None = None,
        idempotency_key: str | None = None,
    ) -> t.Question:
        """Answers a waiting question.

        The model reads the answer as the result of its call. A second answer is 409.

        - `answer`: Any JSON but null; valid against the question's schema if it has one.
        - `answered_by`: Name of the person who answers; the key itself is always recorded.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/questions/{in_path(question_id)}/answer",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"answer": answer},
            optional={"answered_by": answered_by},
        )
        return self._transport.call(request, t.Question)


class Sessions(SessionStreams):
    def create(
        self,
        *,
        agent: str,
        budget: params.BudgetSpec | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_busy: t.OnBusy | None = None,
        project_id: str | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.SessionView:
        """Begins a session with an agent.

        - `agent`: Agent of the session; its version is pinned.
        - `budget`: Budget of all messages together, in the place of the agent's own.
        - `metadata`: Labels of the session.
        - `on_busy`: Policy for a message that arrives while another is answered: `reject`, `enqueue` (when absent),
          `interrupt` or `rollback`.
        - `project_id`: Project that the session is about: each message is told of its goal, plan and results, and the
          tool `plan_project` plans it.
        - `version`: Version of the agent; the newest when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/sessions",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"agent": agent},
            optional={
                "budget": budget,
                "metadata": metadata,
                "on_busy": on_busy,
                "project_id": project_id,
                "version": version,
            },
        )
        return self._transport.call(request, t.SessionView)

    def list(self, *, before: str | None = None, limit: int | None = None) -> Pages[t.SessionView]:
        """Lists the caller's sessions, newest first.

        - `before`: Sessions older than this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/sessions", query={"before": before, "limit": limit})
        return Pages(self._transport, request, t.SessionView, "sessions", "before")

    def get(self, session_id: str) -> t.SessionView:
        """Reads a session."""
        request = Request("GET", f"/v1/sessions/{in_path(session_id)}")
        return self._transport.call(request, t.SessionView)

    def send(
        self,
        session_id: str,
        *,
        message: params.MessageContent,
        on_busy: t.OnBusy | None = None,
        idempotency_key: str | None = None,
    ) -> t.SentView:
        """Sends a message to the session's agent. When this answers, the message is committed.

        - `on_busy`: Policy if another message is answered; the session's when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/sessions/{in_path(session_id)}/messages",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"message": message},
            optional={"on_busy": on_busy},
        )
        return self._transport.call(request, t.SentView)

    def messages(
        self, session_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Pages[t.MessageView]:
        """Lists the transcript: what was said before the message that is answered now.

        - `after`: Messages after this number
        - `limit`: 1 to 500; 100 when absent
        """
        request = Request("GET", f"/v1/sessions/{in_path(session_id)}/messages", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.MessageView, "messages", "after")

    def interrupt(self, session_id: str, *, idempotency_key: str | None = None) -> t.SessionView:
        """Stops the turn under way, and keeps what was said. Does nothing when the session is idle.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/sessions/{in_path(session_id)}/interrupt",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.SessionView)

    def end(self, session_id: str, *, idempotency_key: str | None = None) -> t.SessionView:
        """Ends an idle session. A later message reopens it.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/sessions/{in_path(session_id)}/end",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.SessionView)

    def raise_budget(
        self,
        session_id: str,
        *,
        max_cost_usd: params.Usd | None = None,
        max_model_calls: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.BudgetView:
        """Sets the caps of the budget of all messages of a session.

        Wakes the message that waits for the budget, if it now fits.

        - `max_cost_usd`: US dollars; a number or a string.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/sessions/{in_path(session_id)}/budget",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"max_cost_usd": max_cost_usd, "max_model_calls": max_model_calls, "max_tokens": max_tokens},
        )
        return self._transport.call(request, t.BudgetView)

    def delete(self, session_id: str) -> None:
        """Deletes a session with its transcript, and erases the texts of its executions."""
        request = Request("DELETE", f"/v1/sessions/{in_path(session_id)}")
        return self._transport.call_none(request)


class Agents(Resource):
    def list(self, *, after: str | None = None, limit: int | None = None) -> Pages[t.AgentVersionView]:
        """Lists the newest version of every agent that the caller sees.

        - `after`: Keys after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/agents", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.AgentVersionView, "items", "after")

    def get(self, key: str, *, version: int | None = None) -> t.AgentVersionView:
        """Returns one agent.

        - `version`: The newest when absent
        """
        request = Request("GET", f"/v1/agents/{in_path(key)}", query={"version": version})
        return self._transport.call(request, t.AgentVersionView)

    def put(
        self,
        key: str,
        *,
        name: str,
        prompts: params.AgentPrompts,
        approvals: params.ApprovalsSpec | None = None,
        concurrency: Sequence[params.ConcurrencySpec] | None = None,
        conditions: bool | None = None,
        contract_retries: bool | None = None,
        datasets: Sequence[str] | None = None,
        default_model_ref: str | None = None,
        description: str | None = None,
        fork_overrides: bool | None = None,
        instances: params.InstancesSpec | None = None,
        latent_tools: Sequence[params.LatentToolSpec] | None = None,
        limits: params.AgentLimits | None = None,
        mcp_servers: Mapping[str, params.McpServerSpec] | None = None,
        memory: params.MemorySpec | None = None,
        model: params.ModelSpec | None = None,
        personality: str | None = None,
        references: bool | None = None,
        runtime_constraints: params.RuntimeConstraints | None = None,
        runtime_prompts: params.RuntimePrompts | None = None,
        skills: Sequence[str] | None = None,
        tool_refs: Sequence[str] | None = None,
        tools: Sequence[params.ToolRef] | None = None,
        shared: bool | None = None,
    ) -> t.AgentVersionView:
        """Puts an agent as a new version, unless its newest version has the same content.

        - `name`: Display name.
        - `prompts`: System prompts by purpose.
        - `approvals`: The calls that need a person's approval; see docs/guide/approvals.md.
        - `concurrency`: Limits on the number of the agent's executions that run at a time, over all definitions.
        - `conditions`: Lets calls carry a condition (`_when`). Has an effect only with `references`.
        - `contract_retries`: Retry failures over the contract, too. Off by default, so that failure codes arrive while
          the caller waits.
        - `datasets`: Indexes that the agent's executions may search, in their own tenant. Adds the tool
          `search_dataset`; see docs/guide/retrieval.md.
        - `default_model_ref`: Managed model that the agent uses over the contract when a request names none.
        - `description`: Description for people.
        - `fork_overrides`: Lets callers without the scope `admin` fork the agent's executions with another prompt or
          model, although all tenants share the agent: such a fork uses the agent's tools.
        - `instances`: Lets calls name an instance (`_instance`): one plan over many items. Has an effect only with
          `references`.
        - `latent_tools`: Tools without a handler: the model writes their results itself.
        - `limits`: Limits of one execution.
        - `mcp_servers`: MCP servers by name; their tools are named `mcp__<server>__<tool>`.
        - `memory`: Memory of the agent: of its sessions and executions.
        - `model`: The model and its parameters.
        - `personality`: The agent's character and manner of speaking: begins the system prompt of its sessions. A
          minijinja template, as the prompts.
        - `references`: Lets calls read each other's results (`†state.x`) and name the place of their own
          (`_outputPath`); see docs/guide/loop.md.
        - `runtime_constraints`: Requirements of the agent on its environment, over the contract.
        - `runtime_prompts`: Further texts of the contract.
        - `skills`: Skills that the agent is offered by name and description, and loads when it needs them. Adds the
          tool `load_skill`; see docs/guide/skills.md.
        - `tool_refs`: Refs of the tools from the platform's catalogue that the agent has over the agent-execution
          contract.
        - `tools`: Tools by name, built in or registered on the worker, and declarations of tools that the caller runs.
        - `shared`: For all tenants; needs the scope `admin`
        """
        request = Request(
            "PUT",
            f"/v1/agents/{in_path(key)}",
            query={"shared": shared},
            body={"key": key, "name": name, "prompts": prompts},
            optional={
                "approvals": approvals,
                "concurrency": concurrency,
                "conditions": conditions,
                "contract_retries": contract_retries,
                "datasets": datasets,
                "default_model_ref": default_model_ref,
                "description": description,
                "fork_overrides": fork_overrides,
                "instances": instances,
                "latent_tools": latent_tools,
                "limits": limits,
                "mcp_servers": mcp_servers,
                "memory": memory,
                "model": model,
                "personality": personality,
                "references": references,
                "runtime_constraints": runtime_constraints,
                "runtime_prompts": runtime_prompts,
                "skills": skills,
                "tool_refs": tool_refs,
                "tools": tools,
            },
        )
        return self._transport.call(request, t.AgentVersionView)

    def remove_version(self, key: str, version: int, *, shared: bool | None = None) -> None:
        """Removes a version of an agent.

        - `shared`: The shared one; needs the scope `admin`
        """
        request = Request("DELETE", f"/v1/agents/{in_path(key)}/versions/{in_path(version)}", query={"shared": shared})
        return self._transport.call_none(request)


class Definitions(Resource):
    def list(self, *, after: str | None = None, limit: int | None = None) -> Pages[t.DefinitionVersionView]:
        """Lists the newest version of every definition that the caller sees.

        - `after`: Keys after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/definitions", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.DefinitionVersionView, "items", "after")

    def get(self, key: str, *, version: int | None = None) -> t.DefinitionVersionView:
        """Returns one definition with its input and output schema.

        - `version`: The newest when absent
        """
        request = Request("GET", f"/v1/definitions/{in_path(key)}", query={"version": version})
        return self._transport.call(request, t.DefinitionVersionView)

    def put(
        self,
        key: str,
        *,
        agent_key: str,
        name: str,
        active_timeout_seconds: int | None = None,
        budget: params.BudgetSpec | None = None,
        concurrency: Sequence[params.ConcurrencySpec] | None = None,
        deadline_seconds: int | None = None,
        description: str | None = None,
        failure_codes: Sequence[str] | None = None,
        failure_summary_prompt: str | None = None,
        input_schema: Any = None,
        max_retries: int | None = None,
        output_schema: Any = None,
        prompt: str | None = None,
        retry: params.RetrySpec | None = None,
        runner: t.Runner | None = None,
        validators: Sequence[params.ValidatorRef] | None = None,
        shared: bool | None = None,
    ) -> t.DefinitionVersionView:
        """Puts a definition as a new version, unless its newest version has the same content.

        - `agent_key`: The agent that runs it.
        - `name`: Display name.
        - `active_timeout_seconds`: Maximum time that workers hold an execution, in seconds; waits are excluded.
        - `budget`: Budget of one execution and everything it starts, if the submit sets none; the agent's when absent.
        - `concurrency`: Limits on the number of the definition's executions that run at a time.
        - `deadline_seconds`: Maximum lifetime of an execution, in seconds; waits are included.
        - `description`: Description for people.
        - `failure_codes`: Failure codes of the definition, in addition to the built-in ones.
        - `failure_summary_prompt`: The prompt that asks the model for the failure summary.
        - `input_schema`: JSON Schema of the input; any object when absent.
        - `max_retries`: Maximum number of corrections: `n` allows `n + 1` validated answers.
        - `output_schema`: JSON Schema that the answer must satisfy. When absent, the validators alone decide.
        - `prompt`: The first user message, a minijinja template over `input`. When absent, the input as JSON.
        - `retry`: Retries by failure class, where they differ from the defaults.
        - `runner`: The place of the definition's `run()`.
        - `validators`: Validators in order; the first failing one decides the next step.
        - `shared`: For all tenants; needs the scope `admin`
        """
        request = Request(
            "PUT",
            f"/v1/definitions/{in_path(key)}",
            query={"shared": shared},
            body={"key": key, "agent_key": agent_key, "name": name},
            optional={
                "active_timeout_seconds": active_timeout_seconds,
                "budget": budget,
                "concurrency": concurrency,
                "deadline_seconds": deadline_seconds,
                "description": description,
                "failure_codes": failure_codes,
                "failure_summary_prompt": failure_summary_prompt,
                "input_schema": input_schema,
                "max_retries": max_retries,
                "output_schema": output_schema,
                "prompt": prompt,
                "retry": retry,
                "runner": runner,
                "validators": validators,
            },
        )
        return self._transport.call(request, t.DefinitionVersionView)

    def remove_version(self, key: str, version: int, *, shared: bool | None = None) -> None:
        """Removes a version of a definition.

        - `shared`: The shared one; needs the scope `admin`
        """
        request = Request(
            "DELETE",
            f"/v1/definitions/{in_path(key)}/versions/{in_path(version)}",
            query={"shared": shared},
        )
        return self._transport.call_none(request)


class Skills(Resource):
    def list(self, *, after: str | None = None, limit: int | None = None) -> Pages[t.SkillView]:
        """Lists the newest version of every skill that the caller sees.

        - `after`: Names after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/skills", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.SkillView, "items", "after")

    def get(self, name: str, *, version: int | None = None) -> t.WholeSkillView:
        """Returns one skill with its texts.

        - `version`: The newest when absent
        """
        request = Request("GET", f"/v1/skills/{in_path(name)}", query={"version": version})
        return self._transport.call(request, t.WholeSkillView)

    def put(
        self,
        name: str,
        *,
        body: str,
        description: str,
        files: Mapping[str, str] | None = None,
        shared: bool | None = None,
    ) -> t.SkillView:
        """Puts a skill as a new version, unless its newest version has the same content. Agents that are put later have
        it.

        - `body`: Instructions: `SKILL.md` without its front matter.
        - `description`: The tasks that the skill is for, shown to the model before it loads the skill.
        - `files`: Further texts by path in the folder, such as `references/rates.md`.
        - `shared`: For all tenants; needs the scope `admin`
        """
        request = Request(
            "PUT",
            f"/v1/skills/{in_path(name)}",
            query={"shared": shared},
            body={"name": name, "body": body, "description": description},
            optional={"files": files},
        )
        return self._transport.call(request, t.SkillView)

    def remove_version(self, name: str, version: int, *, shared: bool | None = None) -> None:
        """Removes a version of a skill.

        - `shared`: The shared one; needs the scope `admin`
        """
        request = Request("DELETE", f"/v1/skills/{in_path(name)}/versions/{in_path(version)}", query={"shared": shared})
        return self._transport.call_none(request)


class Projects(Resource):
    def create(
        self,
        *,
        goal: str,
        agent: str | None = None,
        agent_id: str | None = None,
        agents: Sequence[str] | None = None,
        budget: params.BudgetSpec | None = None,
        deadline_seconds: int | None = None,
        execution_strategy: t.ExecutionStrategy | None = None,
        max_parallel_tasks: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        needs_approval: bool | None = None,
        plan: params.Plan | None = None,
        planner: bool | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
    ) -> t.ProjectView:
        """Creates a project, and begins to plan or to run it.

        - `agent`: The same.
        - `agent_id`: Agent that makes the plan, and carries out tasks that name no other; exactly one of `agent_id` and
          `agent`.
        - `agents`: Further agents that tasks may name.
        - `budget`: Budget of the planner and all tasks together, in the place of the agents' own.
        - `deadline_seconds`: Longest life of the project in seconds; at most 30 days. No end when absent.
        - `execution_strategy`: `sequential` (one task at a time), `parallel` (all that are ready) or `dag` (when
          absent; at most `max_parallel_tasks` of those that are ready).
        - `max_parallel_tasks`: Most tasks that run at a time under `dag`; 8 when absent.
        - `metadata`: Labels of the project.
        - `name`: Name for people; the beginning of the goal when absent.
        - `needs_approval`: True if the plan waits for `POST …/approve`.
        - `plan`: The plan. When absent, the agent makes one, unless `planner` is false.
        - `planner`: False to put the plan later.
        - `queue`: Queue of its executions.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/projects",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"goal": goal},
            optional={
                "agent": agent,
                "agent_id": agent_id,
                "agents": agents,
                "budget": budget,
                "deadline_seconds": deadline_seconds,
                "execution_strategy": execution_strategy,
                "max_parallel_tasks": max_parallel_tasks,
                "metadata": metadata,
                "name": name,
                "needs_approval": needs_approval,
                "plan": plan,
                "planner": planner,
                "queue": queue,
            },
        )
        return self._transport.call(request, t.ProjectView)

    def list(
        self, *, status: t.ProjectStatus | None = None, before: str | None = None, limit: int | None = None
    ) -> Pages[t.ProjectView]:
        """Lists the caller's projects, newest first.

        - `status`: Projects of this status
        - `before`: Projects older than this one
        - `limit`: 1 to 200; 20 when absent
        """
        request = Request("GET", "/v1/projects", query={"status": status, "before": before, "limit": limit})
        return Pages(self._transport, request, t.ProjectView, "projects", "before")

    def get(self, project_id: str) -> t.ProjectView:
        """Reads a project."""
        request = Request("GET", f"/v1/projects/{in_path(project_id)}")
        return self._transport.call(request, t.ProjectView)

    def approve(
        self, project_id: str, *, version: int | None = None, idempotency_key: str | None = None
    ) -> t.ProjectView:
        """Approves the plan of a project that waits for it.

        - `version`: Number of the plan that the person has seen; another plan in its place stays unapproved. Any when
          absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/approve",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"version": version},
        )
        return self._transport.call(request, t.ProjectView)

    def pause(self, project_id: str, *, idempotency_key: str | None = None) -> t.ProjectView:
        """Pauses a project: tasks that run finish, and no other starts. Another project may run in its place.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/pause",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.ProjectView)

    def resume(self, project_id: str, *, idempotency_key: str | None = None) -> t.ProjectView:
        """Resumes a project that was paused by request, as soon as there is a place for it.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/resume",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.ProjectView)

    def go_on(self, project_id: str, *, idempotency_key: str | None = None) -> t.ProjectView:
        """Lets a project that waits at the gate of a phase go on to the next phase.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/continue",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.ProjectView)

    def cancel(
        self,
        project_id: str,
        *,
        running_tasks: t.RunningTasks | None = None,
        idempotency_key: str | None = None,
    ) -> t.ProjectView:
        """Cancels a project: no more tasks start.

        - `running_tasks`: `finish` (when absent): tasks that run go on to their end. `cancel`: they are cancelled.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/cancel",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"running_tasks": running_tasks},
        )
        return self._transport.call(request, t.ProjectView)

    def raise_budget(
        self,
        project_id: str,
        *,
        max_cost_usd: params.Usd | None = None,
        max_model_calls: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.BudgetView:
        """Sets the caps of a project's budget; each is a total.

        - `max_cost_usd`: US dollars; a number or a string.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/budget",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"max_cost_usd": max_cost_usd, "max_model_calls": max_model_calls, "max_tokens": max_tokens},
        )
        return self._transport.call(request, t.BudgetView)

    def events(
        self, project_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Pages[t.ProjectEventView]:
        """Lists the events of a project.

        - `after`: Events after this one
        - `limit`: 1 to 1000; 200 when absent
        """
        request = Request("GET", f"/v1/projects/{in_path(project_id)}/events", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.ProjectEventView, "events", "after", is_by_seq=True)

    def get_plan(self, project_id: str) -> t.PlanView:
        """Reads the plan of a project."""
        request = Request("GET", f"/v1/projects/{in_path(project_id)}/plan")
        return self._transport.call(request, t.PlanView)

    def put_plan(self, project_id: str, *, plan: params.Plan, version: int | None = None) -> t.PlanView:
        """Puts the plan of a project, also while it runs.

        Tasks that run or have ended stay as they are, listed or not; an entry that would change one is refused. All
        other tasks are replaced. A plan that was approved is changed only with `approvals:decide`.

        - `version`: Number of the plan that it replaces; another plan in its place is kept. Any when absent.
        """
        request = Request(
            "PUT",
            f"/v1/projects/{in_path(project_id)}/plan",
            body={"plan": plan},
            optional={"version": version},
        )
        return self._transport.call(request, t.PlanView)

    def tasks(self, project_id: str, *, after: int | None = None, limit: int | None = None) -> Pages[t.TaskView]:
        """Lists the tasks of a project.

        - `after`: Tasks after this position
        - `limit`: 1 to 1000; 200 when absent
        """
        request = Request("GET", f"/v1/projects/{in_path(project_id)}/tasks", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.TaskView, "tasks", "after")

    def get_task(self, project_id: str, key: str) -> t.TaskView:
        """Reads a task."""
        request = Request("GET", f"/v1/projects/{in_path(project_id)}/tasks/{in_path(key)}")
        return self._transport.call(request, t.TaskView)

    def retry_task(self, project_id: str, key: str, *, idempotency_key: str | None = None) -> t.TaskView:
        """Starts a failed or cancelled task again.

        Tasks that were skipped because of it are pending again, and a failed project goes on.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/projects/{in_path(project_id)}/tasks/{in_path(key)}/retry",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.TaskView)

    def delete(self, project_id: str) -> None:
        """Deletes a project that has ended, and erases the texts of its executions."""
        request = Request("DELETE", f"/v1/projects/{in_path(project_id)}")
        return self._transport.call_none(request)


class Schedules(Resource):
    def create(
        self,
        *,
        key: str,
        agent: str | None = None,
        at: datetime | None = None,
        budget: params.BudgetSpec | None = None,
        catch_up: t.CatchUp | None = None,
        cron: str | None = None,
        deadline_seconds: int | None = None,
        definition: str | None = None,
        ends_at: datetime | None = None,
        input: Any = None,
        interval_seconds: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        monthly_budget: params.MonthlyBudget | None = None,
        overlap: t.Overlap | None = None,
        pause_after: int | None = None,
        priority: int | None = None,
        queue: str | None = None,
        time_zone: str | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.ScheduleView:
        """Creates a schedule.

        - `key`: Name of the schedule, unique per tenant.
        - `agent`: Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
        - `at`: The only tick.
        - `budget`: Budget of each run; the definition's or the agent's when absent.
        - `catch_up`: `one` when absent.
        - `cron`: Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds`
          and `at`.
        - `deadline_seconds`: Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's
          when absent.
        - `definition`: Definition to run; exactly one of `definition` and `agent`.
        - `ends_at`: Time after which there is no tick.
        - `input`: Input of every run; `{}` when absent.
        - `interval_seconds`: Seconds from one tick to the next, a minute to a year.
        - `metadata`: Metadata of the runs for filters, at most 16 KiB.
        - `monthly_budget`: Budget of all runs of a calendar month, in the time zone of the schedule.
        - `overlap`: `skip` when absent.
        - `pause_after`: Failures in a row after which the schedule is paused; 0 for never, 5 when absent.
        - `priority`: Priority of the runs; higher first.
        - `queue`: Queue of the runs.
        - `time_zone`: IANA time zone of `cron`; UTC when absent.
        - `version`: Version of the definition or agent; the newest at each tick when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/schedules",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"key": key},
            optional={
                "agent": agent,
                "at": at,
                "budget": budget,
                "catch_up": catch_up,
                "cron": cron,
                "deadline_seconds": deadline_seconds,
                "definition": definition,
                "ends_at": ends_at,
                "input": input,
                "interval_seconds": interval_seconds,
                "metadata": metadata,
                "monthly_budget": monthly_budget,
                "overlap": overlap,
                "pause_after": pause_after,
                "priority": priority,
                "queue": queue,
                "time_zone": time_zone,
                "version": version,
            },
        )
        return self._transport.call(request, t.ScheduleView)

    def list(self, *, after: str | None = None, limit: int | None = None) -> Pages[t.ScheduleView]:
        """Lists the caller's schedules.

        - `after`: Keys after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/schedules", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.ScheduleView, "schedules", "after")

    def get(self, key: str) -> t.ScheduleView:
        """Reads a schedule."""
        request = Request("GET", f"/v1/schedules/{in_path(key)}")
        return self._transport.call(request, t.ScheduleView)

    def replace(
        self,
        key: str,
        *,
        agent: str | None = None,
        at: datetime | None = None,
        budget: params.BudgetSpec | None = None,
        catch_up: t.CatchUp | None = None,
        cron: str | None = None,
        deadline_seconds: int | None = None,
        definition: str | None = None,
        ends_at: datetime | None = None,
        input: Any = None,
        interval_seconds: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        monthly_budget: params.MonthlyBudget | None = None,
        overlap: t.Overlap | None = None,
        pause_after: int | None = None,
        priority: int | None = None,
        queue: str | None = None,
        time_zone: str | None = None,
        version: int | None = None,
    ) -> t.ScheduleView:
        """Replaces what a schedule says.

        Its next tick stays if the timing does. A run under way goes on.

        - `agent`: Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
        - `at`: The only tick.
        - `budget`: Budget of each run; the definition's or the agent's when absent.
        - `catch_up`: `one` when absent.
        - `cron`: Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds`
          and `at`.
        - `deadline_seconds`: Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's
          when absent.
        - `definition`: Definition to run; exactly one of `definition` and `agent`.
        - `ends_at`: Time after which there is no tick.
        - `input`: Input of every run; `{}` when absent.
        - `interval_seconds`: Seconds from one tick to the next, a minute to a year.
        - `metadata`: Metadata of the runs for filters, at most 16 KiB.
        - `monthly_budget`: Budget of all runs of a calendar month, in the time zone of the schedule.
        - `overlap`: `skip` when absent.
        - `pause_after`: Failures in a row after which the schedule is paused; 0 for never, 5 when absent.
        - `priority`: Priority of the runs; higher first.
        - `queue`: Queue of the runs.
        - `time_zone`: IANA time zone of `cron`; UTC when absent.
        - `version`: Version of the definition or agent; the newest at each tick when absent.
        """
        request = Request(
            "PUT",
            f"/v1/schedules/{in_path(key)}",
            body={"key": key},
            optional={
                "agent": agent,
                "at": at,
                "budget": budget,
                "catch_up": catch_up,
                "cron": cron,
                "deadline_seconds": deadline_seconds,
                "definition": definition,
                "ends_at": ends_at,
                "input": input,
                "interval_seconds": interval_seconds,
                "metadata": metadata,
                "monthly_budget": monthly_budget,
                "overlap": overlap,
                "pause_after": pause_after,
                "priority": priority,
                "queue": queue,
                "time_zone": time_zone,
                "version": version,
            },
        )
        return self._transport.call(request, t.ScheduleView)

    def pause(self, key: str, *, idempotency_key: str | None = None) -> t.ScheduleView:
        """Pauses a schedule.

        No tick fires, and those that wait for the run under way start none. The run goes on.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/schedules/{in_path(key)}/pause",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.ScheduleView)

    def resume(self, key: str, *, idempotency_key: str | None = None) -> t.ScheduleView:
        """Resumes a paused schedule with the first tick after now. Its failures are forgotten.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/schedules/{in_path(key)}/resume",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.ScheduleView)

    def run(self, key: str, *, idempotency_key: str | None = None) -> t.RunView:
        """Runs a schedule now, also a paused one.

        It follows the overlap policy: while a run is under way it is refused, waits, or cancels that run.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/schedules/{in_path(key)}/run",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.RunView)

    def firings(self, key: str, *, before: str | None = None, limit: int | None = None) -> Pages[t.FiringView]:
        """Lists the firings of a schedule, newest first. They are kept for 90 days.

        - `before`: Firings with a tick before this time
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", f"/v1/schedules/{in_path(key)}/firings", query={"before": before, "limit": limit})
        return Pages(self._transport, request, t.FiringView, "firings", "before")

    def delete(self, key: str) -> None:
        """Deletes a schedule with its history. A run under way goes on."""
        request = Request("DELETE", f"/v1/schedules/{in_path(key)}")
        return self._transport.call_none(request)


class Webhooks(Resource):
    def create(
        self,
        *,
        url: str,
        description: str | None = None,
        enabled: bool | None = None,
        kind: t.WebhookKind | None = None,
        signing_secret: str | None = None,
        types: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> t.WebhookSecretView:
        """Creates a webhook.

        Only this answer and that of a rotation show its secret. A webhook of another kind than `standard` has none.

        - `url`: Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator
          allows more. Of `slack` an incoming webhook, which no answer shows; of `email` a `mailto` URL with up to 10
          addresses.
        - `description`: Note for people.
        - `enabled`: False: nothing is sent to it, and what happens meanwhile is not kept for it.
        - `kind`: Form in which it is told; `standard` when absent. It cannot be changed.
        - `signing_secret`: Signing secret of the Slack app, which no answer shows. When absent from a replacement, it
          stays.
        - `types`: Types of events that it is told: `execution.finished`, `execution.failed`, `execution.quarantined`,
          `approval.requested`, `question.asked`, `tool_call.requested`. All when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/webhooks",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"url": url},
            optional={
                "description": description,
                "enabled": enabled,
                "kind": kind,
                "signing_secret": signing_secret,
                "types": types,
            },
        )
        return self._transport.call(request, t.WebhookSecretView)

    def list(self) -> Pages[t.WebhookView]:
        """Lists the caller's webhooks."""
        request = Request("GET", "/v1/webhooks")
        return Pages(self._transport, request, t.WebhookView, "webhooks", None)

    def get(self, webhook_id: str) -> t.WebhookView:
        """Reads a webhook."""
        request = Request("GET", f"/v1/webhooks/{in_path(webhook_id)}")
        return self._transport.call(request, t.WebhookView)

    def replace(
        self,
        webhook_id: str,
        *,
        url: str,
        description: str | None = None,
        enabled: bool | None = None,
        kind: t.WebhookKind | None = None,
        signing_secret: str | None = None,
        types: Sequence[str] | None = None,
    ) -> t.WebhookView:
        """Replaces a webhook.

        Its secret stays. Its failures are forgotten, and what waits is sent at once.

        - `url`: Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator
          allows more. Of `slack` an incoming webhook, which no answer shows; of `email` a `mailto` URL with up to 10
          addresses.
        - `description`: Note for people.
        - `enabled`: False: nothing is sent to it, and what happens meanwhile is not kept for it.
        - `kind`: Form in which it is told; `standard` when absent. It cannot be changed.
        - `signing_secret`: Signing secret of the Slack app, which no answer shows. When absent from a replacement, it
          stays.
        - `types`: Types of events that it is told: `execution.finished`, `execution.failed`, `execution.quarantined`,
          `approval.requested`, `question.asked`, `tool_call.requested`. All when absent.
        """
        request = Request(
            "PUT",
            f"/v1/webhooks/{in_path(webhook_id)}",
            body={"url": url},
            optional={
                "description": description,
                "enabled": enabled,
                "kind": kind,
                "signing_secret": signing_secret,
                "types": types,
            },
        )
        return self._transport.call(request, t.WebhookView)

    def rotate(
        self, webhook_id: str, *, overlap_seconds: int | None = None, idempotency_key: str | None = None
    ) -> t.WebhookSecretView:
        """Gives a webhook a new secret.

        The secret before signs as well for a time, so that receivers can change over.

        - `overlap_seconds`: In seconds, up to 7 days; a day when absent.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/webhooks/{in_path(webhook_id)}/rotate",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"overlap_seconds": overlap_seconds},
        )
        return self._transport.call(request, t.WebhookSecretView)

    def test(self, webhook_id: str, *, idempotency_key: str | None = None) -> t.TestedView:
        """Sends an event of the type `webhook.test`.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/webhooks/{in_path(webhook_id)}/test",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.TestedView)

    def deliveries(
        self, webhook_id: str, *, state: str | None = None, before: str | None = None, limit: int | None = None
    ) -> Pages[t.DeliveryView]:
        """Lists the deliveries to a webhook, newest first. Those that are over are kept for 14 days.

        - `state`: `waiting`, `delivered` or `failed`
        - `before`: Deliveries before the one with this id
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request(
            "GET",
            f"/v1/webhooks/{in_path(webhook_id)}/deliveries",
            query={"state": state, "before": before, "limit": limit},
        )
        return Pages(self._transport, request, t.DeliveryView, "deliveries", "before")

    def redeliver(
        self,
        webhook_id: str,
        *,
        delivery_id: str | None = None,
        failed_since: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> t.RedeliveredView:
        """Sends deliveries again.

        They keep their ids, and are tried for another 72 hours.

        - `delivery_id`: This delivery, which was delivered or given up.
        - `failed_since`: Those given up that occurred at this time or later, the oldest 10,000.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/webhooks/{in_path(webhook_id)}/redeliver",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"delivery_id": delivery_id, "failed_since": failed_since},
        )
        return self._transport.call(request, t.RedeliveredView)

    def delete(self, webhook_id: str) -> None:
        """Deletes a webhook with its deliveries."""
        request = Request("DELETE", f"/v1/webhooks/{in_path(webhook_id)}")
        return self._transport.call_none(request)


class Files(Resource):
    def upload(
        self, content: bytes, *, name: str | None = None, idempotency_key: str | None = None
    ) -> t.FileView:
        """Uploads a file: PNG, JPEG, WebP, PDF or UTF-8 text, at most 20 MiB. The body is the bytes.

        The same bytes under the same name are the same file, so a repetition changes nothing; an `Idempotency-Key`
        is accepted and not needed. An upload expires after a week by default; what a message names stays with it.

        - `name`: Name, at most 255 characters without `/` and `\\`
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/files",
            query={"name": name},
            headers={"Idempotency-Key": new_key(idempotency_key)},
            content=content,
        )
        return self._transport.call(request, t.FileView)

    def get(self, file_id: str) -> t.FileView:
        """Shows an upload."""
        request = Request("GET", f"/v1/files/{in_path(file_id)}")
        return self._transport.call(request, t.FileView)

    def download(self, file_id: str) -> bytes:
        """Downloads an upload, always as an attachment."""
        request = Request("GET", f"/v1/files/{in_path(file_id)}/content")
        return self._transport.call_bytes(request)

    def delete(self, file_id: str) -> None:
        """Deletes an upload. Executions and sessions that it is attached to keep its bytes."""
        request = Request("DELETE", f"/v1/files/{in_path(file_id)}")
        return self._transport.call_none(request)


class Indexes(Resource):
    def list(self, *, after: str | None = None, limit: int | None = None) -> Pages[t.IndexView]:
        """Lists the caller's indexes.

        - `after`: Names after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/indexes", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.IndexView, "indexes", "after")

    def get(self, name: str) -> t.IndexView:
        """Returns one of the caller's indexes."""
        request = Request("GET", f"/v1/indexes/{in_path(name)}")
        return self._transport.call(request, t.IndexView)

    def delete(self, name: str) -> None:
        """Removes an index with its documents and chunks."""
        request = Request("DELETE", f"/v1/indexes/{in_path(name)}")
        return self._transport.call_none(request)

    def search(
        self,
        name: str,
        *,
        query: str,
        filters: Mapping[str, Any] | None = None,
        hybrid_alpha: float | None = None,
        query_preprocessing: t.Preprocessing | None = None,
        search_method: t.SearchMethod | None = None,
        top_k: int | None = None,
    ) -> t.SearchResults:
        """Searches one of the caller's indexes.

        - `query`: Words or a question.
        - `filters`: Metadata that results must have: strings, numbers or booleans by key.
        - `hybrid_alpha`: Weight of the semantic side of a hybrid search; 0.5 when absent.
        - `query_preprocessing`: `none` when absent.
        - `search_method`: Method of the search; by default `semantic`, or `keyword` if the index holds no embeddings.
        - `top_k`: Maximum number of results; 5 when absent.
        """
        request = Request(
            "POST",
            f"/v1/indexes/{in_path(name)}/search",
            body={"query": query},
            optional={
                "filters": filters,
                "hybrid_alpha": hybrid_alpha,
                "query_preprocessing": query_preprocessing,
                "search_method": search_method,
                "top_k": top_k,
            },
        )
        return self._transport.call(request, t.SearchResults)

    def documents(self, name: str, *, after: str | None = None, limit: int | None = None) -> Pages[t.DocumentView]:
        """Lists the documents of one of the caller's indexes.

        - `after`: Ids after this one
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", f"/v1/indexes/{in_path(name)}/documents", query={"after": after, "limit": limit})
        return Pages(self._transport, request, t.DocumentView, "documents", "after")

    def get_document(self, name: str, document_id: str) -> t.DocumentView:
        """Returns one document: the data that is kept beside its chunks."""
        request = Request("GET", f"/v1/indexes/{in_path(name)}/documents/{in_path(document_id)}")
        return self._transport.call(request, t.DocumentView)

    def put_documents(
        self, name: str, *, documents: Sequence[params.IncomingDocument], idempotency_key: str | None = None
    ) -> t.Ingested:
        """Puts documents into an index.

        Documents are cut into chunks, embedded, and replace their former content. Unchanged documents are not
        embedded again, so the same request may be repeated freely.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/indexes/{in_path(name)}/documents",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"documents": documents},
        )
        return self._transport.call(request, t.Ingested)

    def delete_document(self, name: str, document_id: str) -> None:
        """Removes a document with its chunks."""
        request = Request("DELETE", f"/v1/indexes/{in_path(name)}/documents/{in_path(document_id)}")
        return self._transport.call_none(request)


class Memory(Resource):
    def list(
        self,
        *,
        agent: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Pages[t.EpisodeView]:
        """Lists what agents remember.

        - `agent`: Key of the agent
        - `scope`: Whole scope; empty for the memory that all users share
        - `session`: Session in which it was said
        - `cursor`: `next_cursor` of the page before
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request(
            "GET",
            "/v1/memory",
            query={"agent": agent, "scope": scope, "session": session, "cursor": cursor, "limit": limit},
        )
        return Pages(self._transport, request, t.EpisodeView, "items", "cursor")

    def get(self, memory_id: str) -> t.EpisodeView:
        """Returns one episode."""
        request = Request("GET", f"/v1/memory/{in_path(memory_id)}")
        return self._transport.call(request, t.EpisodeView)

    def put(self, memory_id: str, *, content: str, if_match: str) -> t.EpisodeView:
        """Replaces the content of an episode. Relations that only the old content told of are removed.

        - `content`: The new content, for the whole of the old one.
        - `if_match`: The `hash` of the content that is replaced
        """
        request = Request(
            "PUT",
            f"/v1/memory/{in_path(memory_id)}",
            headers={"If-Match": if_match},
            body={"content": content},
        )
        return self._transport.call(request, t.EpisodeView)

    def search(
        self, *, agent: str, query: str, scope: str | None = None, top_k: int | None = None
    ) -> t.MemoryResults:
        """Searches the memory of an agent, by words and by meaning.

        - `agent`: Key of the agent.
        - `query`: Words or a question.
        - `scope`: Whole scope; the memory that all users share when absent.
        - `top_k`: Maximum number of episodes, and of facts; 5 when absent.
        """
        request = Request(
            "POST",
            "/v1/memory/search",
            body={"agent": agent, "query": query},
            optional={"scope": scope, "top_k": top_k},
        )
        return self._transport.call(request, t.MemoryResults)

    def forget(self, memory_id: str) -> t.ForgottenView:
        """Forgets one episode."""
        request = Request("DELETE", f"/v1/memory/{in_path(memory_id)}")
        return self._transport.call(request, t.ForgottenView)

    def forget_all(self, *, agent: str, scope: str | None = None) -> t.ForgottenView:
        """Forgets what an agent remembers, of one scope or of all.

        - `agent`: Key of the agent
        - `scope`: Whole scope; all scopes when absent
        """
        request = Request("DELETE", "/v1/memory", query={"agent": agent, "scope": scope})
        return self._transport.call(request, t.ForgottenView)


class Runs(Resource):
    def create(
        self,
        *,
        key: str,
        budget: params.BudgetSpec | None = None,
        deadline_seconds: int | None = None,
        reopen: bool | None = None,
        idempotency_key: str | None = None,
    ) -> t.DurableRun:
        """Begins a durable run, or finds the one of the same key.

        A run that exists is returned as it stands, ended or not; its budget and its deadline stay.

        - `key`: Name of the run.
        - `budget`: Budget of all calls of a new run together.
        - `deadline_seconds`: Longest life of a new run in seconds; at most 30 days, which is also its life when absent.
        - `reopen`: Goes on with a run that failed or was cancelled, with as much time as it had.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/runs",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"key": key},
            optional={"budget": budget, "deadline_seconds": deadline_seconds, "reopen": reopen},
        )
        return self._transport.call(request, t.DurableRun)

    def list(
        self, *, status: t.RunStatus | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Pages[t.DurableRun]:
        """Lists durable runs, newest first.

        - `status`: Runs of this status
        - `cursor`: `next_cursor` of the page before
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", "/v1/runs", query={"status": status, "cursor": cursor, "limit": limit})
        return Pages(self._transport, request, t.DurableRun, "runs", "cursor")

    def get(self, key: str) -> t.DurableRun:
        """Reads a durable run."""
        request = Request("GET", f"/v1/runs/{in_path(key)}")
        return self._transport.call(request, t.DurableRun)

    def calls(self, key: str, *, cursor: str | None = None, limit: int | None = None) -> Pages[t.RunCallView]:
        """Lists the recorded model calls of a durable run, in the order in which they were first made.

        - `cursor`: `next_cursor` of the page before
        - `limit`: 1 to 200; 50 when absent
        """
        request = Request("GET", f"/v1/runs/{in_path(key)}/calls", query={"cursor": cursor, "limit": limit})
        return Pages(self._transport, request, t.RunCallView, "calls", "cursor")

    def raise_budget(
        self,
        key: str,
        *,
        max_cost_usd: params.Usd | None = None,
        max_model_calls: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> t.BudgetView:
        """Sets the caps of the budget of all calls of a durable run; each is a total.

        Wakes calls that wait for the budget and now fit.

        - `max_cost_usd`: US dollars; a number or a string.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/runs/{in_path(key)}/budget",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"max_cost_usd": max_cost_usd, "max_model_calls": max_model_calls, "max_tokens": max_tokens},
        )
        return self._transport.call(request, t.BudgetView)

    def end(
        self, key: str, *, status: t.RunEndStatus, note: str | None = None, idempotency_key: str | None = None
    ) -> t.DurableRun:
        """Ends a durable run. Further model calls of it are refused.

        Idempotent: a run that ended in this way before is returned as it stands; one that ended in another way is a
        conflict. Calls under way go on.

        - `note`: Reason for a failure, for people.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/runs/{in_path(key)}/end",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"status": status},
            optional={"note": note},
        )
        return self._transport.call(request, t.DurableRun)

    def cancel(self, key: str, *, idempotency_key: str | None = None) -> t.DurableRun:
        """Cancels a durable run and its model calls under way. Further ones are refused.

        Idempotent: a run that was cancelled before is returned as it stands; one that ended in another way is a
        conflict.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/runs/{in_path(key)}/cancel",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.DurableRun)


class Usage(Resource):
    def get(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
    ) -> t.UsageView:
        """Sums what the executions submitted in a span of time spent, by tenant, agent and model, and how they ended.

        - `since`: Submitted at this time or later; 24 hours before `until` when absent. At most 92 days before `until`
        - `until`: Submitted before this time; now when absent
        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of the organisation
        - `all_tenants`: Of all tenants; needs the scope `admin`
        """
        request = Request(
            "GET",
            "/v1/usage",
            query={"since": since, "until": until, "org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
        )
        return self._transport.call(request, t.UsageView)

    def overview(
        self,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        recent: int | None = None,
    ) -> t.Overview:
        """Counts executions, and summarises the newest: rate, times, failures and spend.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of the organisation
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `recent`: Newest executions to summarise, 0 to 2,000; 2,000 when absent
        """
        request = Request(
            "GET",
            "/v1/overview",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants, "recent": recent},
        )
        return self._transport.call(request, t.Overview)


class Limits(Resource):
    def list(self, *, after: str | None = None, all_tenants: bool | None = None) -> Pages[t.LimitView]:
        """Lists the limits that apply to the caller's executions.

        They are set here, come from definitions and agents, or cover all tenants.

        - `after`: Limits after this one
        - `all_tenants`: Of everybody; needs the scope `admin`
        """
        request = Request("GET", "/v1/limits", query={"after": after, "all_tenants": all_tenants})
        return Pages(self._transport, request, t.LimitView, "limits", "after")

    def put(self, key: str, *, limit: int, shared: bool | None = None) -> t.LimitSet:
        """Sets how many executions may run at a time.

        The limit covers the caller's executions, or all tenants' with `?shared=true`. It holds from the next claim
        on; running executions continue.

        - `limit`: Maximum number of concurrent executions for each value of the key; 0 holds all of them back.
        - `shared`: About all tenants; needs the scope `admin`
        """
        request = Request("PUT", f"/v1/limits/{in_path(key)}", query={"shared": shared}, body={"limit": limit})
        return self._transport.call(request, t.LimitSet)

    def remove(self, key: str, *, shared: bool | None = None) -> None:
        """Removes a limit that was set here.

        Limits of definitions and agents are removed with their versions.

        - `shared`: The one about all tenants; needs the scope `admin`
        """
        request = Request("DELETE", f"/v1/limits/{in_path(key)}", query={"shared": shared})
        return self._transport.call_none(request)


class Quarantine(Resource):
    def list(
        self, *, state: str | None = None, after: str | None = None, all_tenants: bool | None = None
    ) -> Pages[t.QuarantinedView]:
        """Lists executions that killed their workers, oldest first.

        Shows the last activity of each, the workers that died and what it waits for.

        - `state`: `all`: also those that were released, withdrawn or are overdue
        - `after`: Executions after this one
        - `all_tenants`: Of everybody; needs the scope `admin`
        """
        request = Request("GET", "/v1/quarantine", query={"state": state, "after": after, "all_tenants": all_tenants})
        return Pages(self._transport, request, t.QuarantinedView, "quarantined", "after")

    def get(self, quarantine_id: str, *, all_tenants: bool | None = None) -> t.QuarantinedView:
        """Returns one execution that killed its workers.

        - `all_tenants`: Of all tenants; needs the scope `admin`
        """
        request = Request("GET", f"/v1/quarantine/{in_path(quarantine_id)}", query={"all_tenants": all_tenants})
        return self._transport.call(request, t.QuarantinedView)

    def release(
        self,
        quarantine_id: str,
        *,
        all: bool | None = None,
        all_tenants: bool | None = None,
        idempotency_key: str | None = None,
    ) -> t.ReleaseView:
        """Retries a quarantined execution as the canary of its group.

        The retry runs whatever the build of the workers. With `all`, releases the whole group without a canary.

        - `all`: Releases the whole group, a portion at a time and without a canary.
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/quarantine/{in_path(quarantine_id)}/release",
            query={"all_tenants": all_tenants},
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"all": all},
        )
        return self._transport.call(request, t.ReleaseView)


class Keys(Resource):
    def create(
        self,
        *,
        name: str,
        expires_at: datetime | None = None,
        group_id: str | None = None,
        org_id: str | None = None,
        roles: Sequence[str] | None = None,
        scopes: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> t.KeySecretView:
        """Creates an API key.

        Needs the scope `keys:write`, and every scope of the new key. Only this answer shows the key.

        - `name`: Name for people.
        - `expires_at`: End of the key; none when absent. A key that ends gives its own end to the keys it creates,
          unless they end earlier.
        - `group_id`: Group of the key within `org_id`.
        - `org_id`: Organisation of the key; the caller's tenant when absent. Needs the scope `admin`.
        - `roles`: Roles whose scopes the key has as well: `viewer`, `operator`, `approver`, `admin`, `superadmin`. The
          key keeps the scopes that they have now.
        - `scopes`: Scopes, each of which the asking key must have: `executions:read`, `executions:write`,
          `approvals:decide`, `definitions:read`, `definitions:write`, `keys:write`, `audit:read`, `admin`.
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/keys",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"name": name},
            optional={
                "expires_at": expires_at,
                "group_id": group_id,
                "org_id": org_id,
                "roles": roles,
                "scopes": scopes,
            },
        )
        return self._transport.call(request, t.KeySecretView)

    def list(
        self,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Pages[t.KeyView]:
        """Lists API keys, newest first, without their secrets.

        A revoked or expired key is listed for 90 days.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `limit`: 1 to 200; 50 when absent
        - `cursor`: `next_cursor` of the page before
        """
        request = Request(
            "GET",
            "/v1/keys",
            query={
                "org_id": org_id,
                "group_id": group_id,
                "all_tenants": all_tenants,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return Pages(self._transport, request, t.KeyView, "keys", "cursor")

    def holdings(
        self,
        key_id: str,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
    ) -> t.HoldingsView:
        """Lists the objects of a key, or of the account of a person, that act after its revocation.

        Needs the scope `keys:write`.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        """
        request = Request(
            "GET",
            f"/v1/keys/{in_path(key_id)}/holdings",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
        )
        return self._transport.call(request, t.HoldingsView)

    def rotate(
        self,
        key_id: str,
        *,
        expires_at: datetime | None = None,
        overlap_seconds: int | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        idempotency_key: str | None = None,
    ) -> t.KeySecretView:
        """Creates an API key in the place of another.

        Needs the scope `keys:write`, and every scope of the old key. The new key has its name and its scopes. The
        old one is accepted for `overlap_seconds` more, unless it ends earlier. Only this answer shows the new key;
        after a lost answer, rotate the old key again.

        - `expires_at`: End of the new key; that of the old one when absent.
        - `overlap_seconds`: Time for which the old key is still accepted, in seconds, up to 30 days; a day when absent.
        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/keys/{in_path(key_id)}/rotate",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={},
            optional={"expires_at": expires_at, "overlap_seconds": overlap_seconds},
        )
        return self._transport.call(request, t.KeySecretView)

    def revoke(
        self,
        key_id: str,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
    ) -> None:
        """Revokes an API key; all processes refuse it within 10 seconds.

        Needs the scope `keys:write`. A key may revoke itself, and keys with more scopes than it has.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        """
        request = Request(
            "DELETE",
            f"/v1/keys/{in_path(key_id)}",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
        )
        return self._transport.call_none(request)


class Accounts(Resource):
    def list(
        self,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Pages[t.AccountView]:
        """Lists the people who signed in with the OpenID Connect provider.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `after`: `next_after` of the page before
        - `limit`: 1 to 200; 100 when absent
        """
        request = Request(
            "GET",
            "/v1/accounts",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants, "after": after, "limit": limit},
        )
        return Pages(self._transport, request, t.AccountView, "accounts", "after")

    def disable(
        self,
        account_id: str,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        idempotency_key: str | None = None,
    ) -> t.AccountView:
        """Disables an account: the person cannot sign in, and its sessions end within 10 seconds.

        Keys that the person created stay valid.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/accounts/{in_path(account_id)}/disable",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.AccountView)

    def enable(
        self,
        account_id: str,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        idempotency_key: str | None = None,
    ) -> t.AccountView:
        """Enables an account again.

        - `org_id`: Of this organisation; needs the scope `admin`
        - `group_id`: Of this group of `org_id`
        - `all_tenants`: Of all tenants; needs the scope `admin`
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/accounts/{in_path(account_id)}/enable",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants},
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.AccountView)


class Audit(Resource):
    def list(
        self,
        *,
        actor: str | None = None,
        route: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Pages[t.AuditEntryView]:
        """Lists changes over the API, newest first: which key asked for what, and how it was answered.

        Refused requests are listed too. Submits, messages of sessions and results of the caller's tools are not:
        their executions hold them. A row appears within about a second.

        - `actor`: By the key or person with this id
        - `route`: With this template of the path
        - `target`: With this target
        - `since`: At this time or later
        - `until`: Before this time
        - `org_id`: By keys of this organisation; needs the scope `admin`
        - `group_id`: By keys of this group of `org_id`
        - `all_tenants`: By keys of everybody; needs the scope `admin`
        - `limit`: 1 to 200; 50 when absent
        - `cursor`: `next_cursor` of the page before
        """
        request = Request(
            "GET",
            "/v1/audit",
            query={
                "actor": actor,
                "route": route,
                "target": target,
                "since": since,
                "until": until,
                "org_id": org_id,
                "group_id": group_id,
                "all_tenants": all_tenants,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return Pages(self._transport, request, t.AuditEntryView, "entries", "cursor")


class Workers(Resource):
    def list(
        self, *, state: t.WorkerState | None = None, after: str | None = None, limit: int | None = None
    ) -> Pages[t.WorkerView]:
        """Lists the workers of the fleet; dead ones for an hour.

        Needs the scope `admin`.

        - `state`: In this state
        - `after`: `next_after` of the page before
        - `limit`: 1 to 200; 100 when absent
        """
        request = Request("GET", "/v1/workers", query={"state": state, "after": after, "limit": limit})
        return Pages(self._transport, request, t.WorkerView, "workers", "after")

    def get(
        self,
        worker_id: str,
        *,
        org_id: str | None = None,
        group_id: str | None = None,
        all_tenants: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> t.WorkerDetail:
        """Reads a worker and the executions that it holds.

        Needs the scope `admin`. Lists the executions of the caller's tenant, or of those that the query names;
        `held` counts those of all tenants. `lost` are the executions that it held when it was declared dead, at most
        200.

        - `org_id`: Executions of this organisation
        - `group_id`: Executions of this group of `org_id`
        - `all_tenants`: Executions of everybody
        - `after`: `next_after` of the page before
        - `limit`: 1 to 200; 100 when absent
        """
        request = Request(
            "GET",
            f"/v1/workers/{in_path(worker_id)}",
            query={"org_id": org_id, "group_id": group_id, "all_tenants": all_tenants, "after": after, "limit": limit},
        )
        return self._transport.call(request, t.WorkerDetail)

    def drain(self, worker_id: str, *, idempotency_key: str | None = None) -> t.WorkerView:
        """Asks a worker to drain.

        Needs the scope `admin`. The worker learns of it within two seconds, claims nothing more, ends its attempts
        as on SIGTERM, and exits; a supervisor may start another in its place. Repeating it changes nothing.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/workers/{in_path(worker_id)}/drain",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, t.WorkerView)

    def demand(self, *, queues: str | None = None, concurrency: int | None = None) -> t.FleetDemand:
        """Counts the workers that the work takes, for a scaler.

        Needs the scope `admin`. Without `concurrency`, workers are taken to be as large as the live ones are on
        average, or as `worker.concurrency` says if none lives.

        - `queues`: Names of queues, separated by commas; all if absent
        - `concurrency`: Executions that one worker runs at a time
        """
        request = Request("GET", "/v1/fleet/demand", query={"queues": queues, "concurrency": concurrency})
        return self._transport.call(request, t.FleetDemand)

    def offers(self) -> t.Offers:
        """Lists the names of tools, validators, providers and models that records may use.

        Needs the scope `definitions:write`. `longhaul apply` compares files with it.
        """
        request = Request("GET", "/v1/fleet/offers")
        return self._transport.call(request, t.Offers)


class Providers(Resource):
    def health(self) -> Pages[t.EndpointView]:
        """Lists the model endpoints that are, or were, down or at their limits.

        Needs the scope `admin`: the keys belong to the whole fleet.
        """
        request = Request("GET", "/v1/providers/health")
        return Pages(self._transport, request, t.EndpointView, "endpoints", None)

    def reset_health(
        self,
        *,
        provider: str,
        key: str | None = None,
        model: str | None = None,
        idempotency_key: str | None = None,
    ) -> t.HealthView:
        """Resets the circuit breakers of a provider that works again.

        One waiting execution goes ahead, then two, four, and so on as the provider answers.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/providers/health/reset",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"provider": provider},
            optional={"key": key, "model": model},
        )
        return self._transport.call(request, t.HealthView)


class Platform(Resource):
    def get(self) -> t.PlatformView:
        """Returns deployment profiles with bindings, providers with health, models, tools, and access to agents.

        Needs the scope `admin`.
        """
        request = Request("GET", "/v1/platform")
        return self._transport.call(request, t.PlatformView)

    def put(
        self,
        *,
        access: Sequence[params.AccessSpec] | None = None,
        active_profile: str | None = None,
        kind: str | None = None,
        managed_models: Sequence[params.ManagedModelSpec] | None = None,
        policy_rules: Sequence[params.RuleSpec] | None = None,
        profiles: Sequence[params.ProfileSpec] | None = None,
        providers: Sequence[params.ProviderSpec] | None = None,
        runtime_profile: t.RuntimeProfile | None = None,
        tools: Sequence[params.CatalogueToolSpec] | None = None,
    ) -> t.PlatformView:
        """Puts the entries of a document; entries that it does not name stay as they are.

        Needs the scope `admin`.

        - `access`: Owners and shares of agents.
        - `active_profile`: Slug of the profile that becomes active.
        - `kind`: In a file, `platform`; distinguishes the document from an agent or a definition.
        - `managed_models`: Models that bindings may list.
        - `policy_rules`: Rules for executing agents. A deny always wins.
        - `profiles`: Deployment profiles with all their bindings.
        - `runtime_profile`: Runtime profile of runs that request none.
        - `tools`: Tools that agents may name in `tool_refs`.
        """
        request = Request(
            "PUT",
            "/v1/platform",
            body={},
            optional={
                "access": access,
                "active_profile": active_profile,
                "kind": kind,
                "managed_models": managed_models,
                "policy_rules": policy_rules,
                "profiles": profiles,
                "providers": providers,
                "runtime_profile": runtime_profile,
                "tools": tools,
            },
        )
        return self._transport.call(request, t.PlatformView)

    def remove(self, kind: str, name: str) -> None:
        """Removes one entry of `managed_models`, `providers`, `profiles`, `tools`, `access` or `policy_rules`.

        An agent without `access` is open to every caller that may submit. Needs the scope `admin`.
        """
        request = Request("DELETE", f"/v1/platform/{in_path(kind)}/{in_path(name)}")
        return self._transport.call_none(request)


class Server(Resource):
    def whoami(self) -> t.Whoami:
        """Returns the key or the person that the request is made by."""
        request = Request("GET", "/v1/whoami")
        return self._transport.call(request, t.Whoami)

    def health(self) -> str:
        """Checks that the process runs."""
        request = Request("GET", "/healthz")
        return self._transport.call_text(request)

    def readiness(self) -> t.Readiness:
        """Checks that the process can serve requests."""
        request = Request("GET", "/readyz")
        return self._transport.call(request, t.Readiness)

    def metrics(self) -> str:
        """Returns the Prometheus metrics of this process."""
        request = Request("GET", "/metrics")
        return self._transport.call_text(request)


class AgentExecutions(Resource):
    def create(
        self,
        body: params.AgentExecutionBody,
        *,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
    ) -> t.AgentExecutionEnvelope:
        """Runs an agent on the platform's active bindings.

        The answer is held as in `/v1/internal/agent-executions`.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        - `wait_seconds`: Seconds to hold the answer until the execution ends, at most 60.
        """
        request = Request(
            "POST",
            "/v1/agent-executions",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body=body,
            wait_seconds=wait_seconds,
        )
        return self._transport.call(request, t.AgentExecutionEnvelope)

    def get(self, agent_execution_id: str) -> t.AgentExecutionEnvelope:
        """Returns the record of an execution of the caller's tenant."""
        request = Request("GET", f"/v1/agent-executions/{in_path(agent_execution_id)}")
        return self._transport.call(request, t.AgentExecutionEnvelope)

    def create_internal(
        self,
        body: params.InternalAgentExecutionBody,
        *,
        service_token: str,
        request_id: str | None = None,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
    ) -> t.AgentExecutionEnvelope:
        """Runs an agent.

        The answer is held until the execution is over or the wait has passed (`Prefer: wait=N`, 60 s when absent).
        It is the record at that time.

        - `service_token`: One of the server's service tokens.
        - `request_id`: For correlation; made when absent
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        - `wait_seconds`: Seconds to hold the answer until the execution ends, at most 60.
        """
        request = Request(
            "POST",
            "/v1/internal/agent-executions",
            headers={
                "X-Request-Id": request_id,
                "Idempotency-Key": new_key(idempotency_key),
                "X-Service-Token": service_token,
            },
            body=body,
            wait_seconds=wait_seconds,
        )
        return self._transport.call(request, t.AgentExecutionEnvelope)

    def find_internal(self, *, service_token: str, request_id: str) -> Pages[t.AgentExecution]:
        """Lists the executions that were requested under one `X-Request-Id`, newest first.

        For a caller that gave up before it received an id.

        - `service_token`: One of the server's service tokens.
        - `request_id`: The `X-Request-Id` of the POST
        """
        request = Request(
            "GET",
            "/v1/internal/agent-executions",
            query={"request_id": request_id},
            headers={"X-Service-Token": service_token},
        )
        return Pages(self._transport, request, t.AgentExecution, "executions", None)

    def get_internal(self, agent_execution_id: str, *, service_token: str) -> t.AgentExecutionEnvelope:
        """Returns the current record of an execution.

        - `service_token`: One of the server's service tokens.
        """
        request = Request(
            "GET",
            f"/v1/internal/agent-executions/{in_path(agent_execution_id)}",
            headers={"X-Service-Token": service_token},
        )
        return self._transport.call(request, t.AgentExecutionEnvelope)

    def stream_internal(
        self, body: params.InternalAgentExecutionBody, *, service_token: str
    ) -> Iterator[ServerSentEvent]:
        """Runs an agent and streams its progress.

        Events and the schemas of their `data`: `status` (`AgentExecutionStatusFrame`), `delta`
        (`AgentExecutionDeltaFrame`), and at the end `complete` (`AgentExecutionCompleteFrame`) or `error`
        (`AgentExecutionErrorFrame`).

        - `service_token`: One of the server's service tokens.
        """
        request = Request(
            "POST",
            "/v1/internal/agent-executions/stream",
            headers={"X-Service-Token": service_token},
            body=body,
            is_once=True,
        )
        return self._transport.stream(request)


class Wires(Resource):
    def models(self) -> dict[str, Any]:
        """Lists agents, definitions, aliases and models that requests may name.

        One object for the clients of `OpenAI` and of Anthropic.
        """
        request = Request("GET", "/v1/models")
        return self._transport.call(request, dict[str, Any])

    def get_model(self, model_id: str) -> dict[str, Any]:
        """Tells of one model. Its id may hold `/` and `:`."""
        request = Request("GET", f"/v1/models/{in_path(model_id)}")
        return self._transport.call(request, dict[str, Any])

    def chat_completion(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s chat completions do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/chat/completions",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body=body,
        )
        return self._transport.call(request, dict[str, Any])

    def stream_chat_completion(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[ServerSentEvent]:
        """Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s chat completions do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/chat/completions",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body={**body, "stream": True},
        )
        return self._transport.stream(request)

    def response(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s responses do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/responses",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body=body,
        )
        return self._transport.call(request, dict[str, Any])

    def stream_response(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[ServerSentEvent]:
        """Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s responses do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/responses",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body={**body, "stream": True},
        )
        return self._transport.stream(request)

    def get_response(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        include: str | None = None,
        include_obfuscation: bool | None = None,
    ) -> dict[str, Any]:
        """Reads a response as it stands, or streams its events after `starting_after`, also long after its end.

        - `starting_after`: Events after this number
        - `include`: Accepted, and without effect
        - `include_obfuscation`: Accepted, and without effect
        """
        request = Request(
            "GET",
            f"/v1/responses/{in_path(response_id)}",
            query={"starting_after": starting_after, "include": include, "include_obfuscation": include_obfuscation},
        )
        return self._transport.call(request, dict[str, Any])

    def follow_response(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        include: str | None = None,
        include_obfuscation: bool | None = None,
    ) -> Iterator[ServerSentEvent]:
        """Reads a response as it stands, or streams its events after `starting_after`, also long after its end.

        - `starting_after`: Events after this number
        - `include`: Accepted, and without effect
        - `include_obfuscation`: Accepted, and without effect
        """
        request = Request(
            "GET",
            f"/v1/responses/{in_path(response_id)}",
            query={
                "starting_after": starting_after,
                "include": include,
                "include_obfuscation": include_obfuscation,
                "stream": True,
            },
        )
        return self._transport.stream(request)

    def response_input(
        self,
        response_id: str,
        *,
        limit: int | None = None,
        order: str | None = None,
        after: str | None = None,
        include: str | None = None,
    ) -> dict[str, Any]:
        """Lists the input of a response.

        - `limit`: 1 to 100; 20 when absent
        - `order`: `asc` or `desc`; `desc` when absent
        - `after`: Items after the one with this id
        - `include`: Accepted, and without effect
        """
        request = Request(
            "GET",
            f"/v1/responses/{in_path(response_id)}/input_items",
            query={"limit": limit, "order": order, "after": after, "include": include},
        )
        return self._transport.call(request, dict[str, Any])

    def cancel_response(self, response_id: str, *, idempotency_key: str | None = None) -> dict[str, Any]:
        """Cancels a response that was made in the background. A repeat changes nothing.

        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/responses/{in_path(response_id)}/cancel",
            headers={"Idempotency-Key": new_key(idempotency_key)},
        )
        return self._transport.call(request, dict[str, Any])

    def delete_response(self, response_id: str) -> dict[str, Any]:
        """Deletes a response: it cannot be read from now on, and its texts are erased once it has ended."""
        request = Request("DELETE", f"/v1/responses/{in_path(response_id)}")
        return self._transport.call(request, dict[str, Any])

    def compact_response(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Summarises a conversation by one call of the model, and answers with an item that stands for it."""
        request = Request("POST", "/v1/responses/compact", body=body, is_once=True)
        return self._transport.call(request, dict[str, Any])

    def count_response_tokens(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Estimates the tokens of a request. Nothing is run."""
        request = Request("POST", "/v1/responses/input_tokens", body=body)
        return self._transport.call(request, dict[str, Any])

    def message(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Runs an agent, a definition or one call of a model, and answers as Anthropic's messages do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/messages",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body=body,
        )
        return self._transport.call(request, dict[str, Any])

    def stream_message(
        self,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[ServerSentEvent]:
        """Runs an agent, a definition or one call of a model, and answers as Anthropic's messages do.

        `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            "/v1/messages",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body={**body, "stream": True},
        )
        return self._transport.stream(request)

    def count_message_tokens(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Estimates the tokens of a request. Nothing is run."""
        request = Request("POST", "/v1/messages/count_tokens", body=body)
        return self._transport.call(request, dict[str, Any])

    def run_agui(
        self,
        agent: str,
        body: Mapping[str, Any],
        *,
        run: str | None = None,
        attempt: str | None = None,
        step: str | None = None,
        execution: str | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[ServerSentEvent]:
        """Runs an agent for a client of AG-UI and streams its events.

        Tools of the request are run by the client, and approvals and questions are interrupts, whose answers come
        with the next request of the thread. The header `Longhaul-Cursor` names the run for `GET`.

        - `run`: Key of the durable run that the request belongs to
        - `attempt`: Id of this start of the program; required with a run
        - `step`: Name of the call, in place of its content
        - `execution`: Execution that a worker over HTTP holds, whose call this is
        - `lease`: Token of its lease
        - `idempotency_key`: Makes the request once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/v1/agui/{in_path(agent)}",
            headers={
                "Longhaul-Run": run,
                "Longhaul-Attempt": attempt,
                "Longhaul-Step": step,
                "Longhaul-Execution": execution,
                "Longhaul-Lease": lease,
                "Idempotency-Key": new_key(idempotency_key),
            },
            body=body,
        )
        return self._transport.stream(request)

    def follow_agui(self, agent: str, run_id: str, *, after: int | None = None) -> Iterator[ServerSentEvent]:
        """Streams a run again, for a client that lost its connection: what was said so far as one snapshot, then the
        events that follow; or, with `after`, the events after that number.

        - `after`: Leaves out the events that the client has, counted from 1
        """
        request = Request("GET", f"/v1/agui/{in_path(agent)}/runs/{in_path(run_id)}", query={"after": after})
        return self._transport.stream(request)


class Resources:
    """All operations, by the things that they are about."""

    def __init__(self, transport: Transport) -> None:
        self.executions = Executions(transport)
        self.approvals = Approvals(transport)
        self.questions = Questions(transport)
        self.sessions = Sessions(transport)
        self.agents = Agents(transport)
        self.definitions = Definitions(transport)
        self.skills = Skills(transport)
        self.projects = Projects(transport)
        self.schedules = Schedules(transport)
        self.webhooks = Webhooks(transport)
        self.files = Files(transport)
        self.indexes = Indexes(transport)
        self.memory = Memory(transport)
        self.runs = Runs(transport)
        self.usage = Usage(transport)
        self.limits = Limits(transport)
        self.quarantine = Quarantine(transport)
        self.keys = Keys(transport)
        self.accounts = Accounts(transport)
        self.audit = Audit(transport)
        self.workers = Workers(transport)
        self.providers = Providers(transport)
        self.platform = Platform(transport)
        self.server = Server(transport)
        self.agent_executions = AgentExecutions(transport)
        self.wires = Wires(transport)
