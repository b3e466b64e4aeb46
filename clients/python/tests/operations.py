"""Tests of the operations: lists, batches, people, tools, chats, files."""

from __future__ import annotations

import inspect
import json
import re
import urllib.request
import uuid
from typing import Any

from proxy import Cut, Proxy
from support import MAIL, NOWHERE, URL, New, answer, finished, later, raised

import longhaul

# Calls the tool that its message names, and then says what the tool answered.
SCRIPT = """
{%- if last.role == "user" and "open" in last.text -%}
  {{ calls([call("open_file", {"path": last.text | regex_find("open (.+)")})]) }}
{%- elif last.role == "user" and "ask" in last.text -%}
  {{ calls([call("ask_caller", {"question": "Which colour?"})]) }}
{%- else -%}
  {{ text("Heard: " ~ last.text) }}
{%- endif -%}
"""


def desk(client: longhaul.Client) -> str:
    """An agent whose tool is run by the caller, after an approval for a secret file."""
    client.agents.put(
        "client-desk",
        name="Desk",
        prompts={"conversation": "You open files."},
        model={"script": SCRIPT, "stream": True},
        tools=[
            "ask_caller",
            {
                "name": "open_file",
                "runs": "caller",
                "description": "Opens a file.",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            },
        ],
        approvals={
            "allow_self": True,
            "rules": [{"tool": "open_file", "when": 'arguments.path == "secret"', "access": "ask"}],
        },
    )
    return "client-desk"


def waiting(client: longhaul.Client, prompt: str) -> str:
    """Id of an execution that waits for a person or its caller."""
    execution = client.submit(agent=desk(client), input={"prompt": prompt})
    for event in client.events(execution.id):
        if event.kind == "parked":
            return execution.id
    raise AssertionError(f"ended: {client.get(execution.id)}")


def list_goes_over_all_pages(new: New) -> None:
    client = new()
    marker = str(uuid.uuid4())
    ids = [later(client, metadata={"marker": marker}) for _ in range(3)]
    found = client.executions.list(metadata={"marker": marker}, status="PENDING", limit=1)
    assert [execution.id for execution in found] == ids[::-1]
    pages = list(found.pages())
    assert [execution.id for page in pages for execution in page.items] == ids[::-1] and pages[-1].next is None
    rest = client.executions.list(metadata={"marker": marker}, limit=1, cursor=pages[0].next)
    assert [execution.id for execution in rest] == ids[1::-1]
    ended = finished(client)
    kinds = [event.kind for event in client.executions.list_events(ended, limit=2)]
    assert kinds == [event.kind for event in client.events(ended)], kinds
    assert [step.kind for step in client.executions.steps(ended, limit=1)] == ["prompt", "turn"]
    assert any(agent.key == "mail-sorter" for agent in client.agents.list(limit=1))


def batch_has_a_verdict_for_each_item(new: New) -> None:
    client = new()
    key = str(uuid.uuid4())
    items: Any = [{"definition": "mail-triage", "input": MAIL}, {"definition": "no-such-definition"}]
    batch = client.executions.submit_batch(executions=items, idempotency_key=key)
    first, second = batch.results
    assert first.id and second.error and second.error.code == "unknown_definition", batch
    assert client.executions.submit_batch(executions=items, idempotency_key=key).results[0].id == first.id
    assert client.wait(first.id, timeout=30).status == "FINISHED"


def approval_is_decided(new: New) -> None:
    client = new()
    execution_id = waiting(client, "open secret")
    (listed,) = client.approvals.list(state="waiting", execution=execution_id)
    approval = client.approvals.get(listed.id)
    assert approval.arguments == {"path": "secret"}, approval
    decided = client.approvals.decide(approval.id, decision="reject", hash=approval.hash, reason="no", decided_by="Ada")
    assert (decided.state, client.approvals.get(approval.id).state) == ("rejected", "rejected"), decided
    output: Any = client.wait(execution_id, timeout=30).output
    assert "rejected by user" in output["response"], output
    error = raised(longhaul.Conflict, client.approvals.decide, approval.id, decision="approve", hash=approval.hash)
    assert error.code == "already_decided", error


def question_is_answered(new: New) -> None:
    client = new()
    execution_id = waiting(client, "ask")
    (question,) = client.questions.list(execution=execution_id)
    assert client.questions.answer(question.id, answer="blue").state == "answered"
    output: Any = client.wait(execution_id, timeout=30).output
    assert "blue" in output["response"], output


def caller_runs_a_tool(new: New) -> None:
    client = new()
    execution_id = waiting(client, "open a.txt")
    (call,) = client.get(execution_id).requires_action or []
    assert call.call_id and call.hash and call.arguments == {"path": "a.txt"}, call
    client.executions.post_tool_results(
        execution_id, results=[{"call_id": call.call_id, "hash": call.hash, "output": "three lines"}]
    )
    output: Any = client.wait(execution_id, timeout=30).output
    assert output["response"] == "Heard: three lines", output


def chat_is_streamed(new: New) -> None:
    client = new()
    chat = client.sessions.chat(desk(client), "Hello")
    text = ""
    reason = None
    for event in chat:
        if event.kind == "delta":
            text = text[: event.data.offset] + event.data.text
        elif event.kind == "done":
            reason = event.data.stop_reason
    assert (text, reason) == ("Heard: Hello", "end_turn"), text
    assert chat.session_id
    again = list(client.sessions.chat("client-desk", "And you?", session_id=chat.session_id))
    assert again[-1].kind == "done"
    roles = [message.message["role"] for message in client.sessions.messages(chat.session_id, limit=2)]
    assert roles.count("user") == roles.count("assistant") == 2, roles
    followed = []
    for event in client.sessions.events(chat.session_id):
        followed.append(event.kind)
        if followed.count("done") == 2:
            break
    assert client.sessions.end(chat.session_id).status == "ended"
    client.sessions.delete(chat.session_id)
    raised(longhaul.NotFound, client.sessions.get, chat.session_id)


def cut_chat_is_resumed(new: New) -> None:
    client = new()
    proxy = Proxy(URL, Cut(after=b"\n\n"), Cut(after=b""))
    chat = new(proxy.url).sessions.chat(desk(client), "Hello")
    kinds = [event.kind for event in chat]
    assert kinds[-1] == "done" and kinds.count("done") == 1, kinds
    assert len(proxy.requests) == 3 and chat.session_id
    sent = [message for message in client.sessions.messages(chat.session_id) if message.message["role"] == "user"]
    assert len(sent) == 1, sent


def answer_may_be_held(new: New) -> None:
    proxy = Proxy(URL)
    execution = new(proxy.url).submit(definition="mail-triage", input=MAIL, wait_seconds=30)
    assert execution.status == "FINISHED" and proxy.lines == ["POST /v1/executions"], proxy.lines


def file_comes_back(new: New) -> None:
    client = new()
    file = client.files.upload(b"line\n", name="a.txt")
    assert client.files.get(file.file_id).name == "a.txt"
    assert client.files.download(file.file_id) == b"line\n"
    client.files.delete(file.file_id)
    raised(longhaul.NotFound, client.files.get, file.file_id)


def schedule_is_kept(new: New) -> None:
    client = new()
    key = f"s-{uuid.uuid4()}"
    made = client.schedules.create(key=key, cron="0 6 * * *", definition="mail-triage", input=MAIL)
    assert made.key == key and client.schedules.pause(key).status == "paused"
    assert key in [schedule.key for schedule in client.schedules.list(limit=1)]
    client.schedules.delete(key)
    raised(longhaul.NotFound, client.schedules.get, key)


def answer_goes_back_as_a_request(new: New) -> None:
    client = new()
    agent = client.agents.get(desk(client))
    assert client.agents.put(**agent.spec.to_dict()).version == agent.version


def any_request_may_be_sent(new: New) -> None:
    client = new()
    assert client.request("GET", "/v1/executions", params={"limit": 1})["executions"] is not None
    body = {"definition": "mail-triage", "input": MAIL}
    made = client.request("POST", "/v1/executions", json=body)
    assert client.wait(made["id"], timeout=30).status == "FINISHED"
    raised(longhaul.NotFound, client.request, "DELETE", f"/v1/files/{NOWHERE}")
    for wrong in ("v1/executions", "//127.0.0.1/v1", "https://127.0.0.1/v1"):
        try:
            client.request("GET", wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was sent")


def reads_of_an_installation_work(new: New) -> None:
    client = new()
    assert client.server.health() and client.server.readiness().ready and isinstance(client.server.metrics(), str)
    assert client.server.whoami().kind == "key" and client.usage.get().since.tzinfo
    assert client.usage.overview().counts and len(list(client.workers.list())) >= 1
    assert client.workers.demand().live_workers >= 1 and client.workers.offers().tools
    assert isinstance(client.wires.models()["data"], list)
    for lists in (client.projects, client.webhooks, client.skills, client.runs, client.limits, client.quarantine):
        assert all(lists.list())
    for other in (client.indexes, client.memory, client.accounts, client.audit, client.keys, client.definitions):
        assert all(other.list())
    raised(longhaul.NotFound, client.projects.get, NOWHERE)


def every_operation_is_sent(new: New) -> None:
    with urllib.request.urlopen(f"{URL}/openapi.json", timeout=30) as document:
        paths = json.load(document)["paths"]
    expected = {
        (http.upper(), re.sub(r"\{\w+\}", "x", path.replace("{version}", "1")))
        for path, methods in paths.items()
        for http, operation in methods.items()
        # The first are those of `longhaul.worker`, the second is a WebSocket.
        if "worker protocol" not in operation["tags"] and operation["operationId"] != "connectResponses"
    }
    proxy = Proxy(URL, *[answer("404 Not Found")] * 2 * len(expected))
    client = new(proxy.url)
    for namespace, operations in vars(longhaul.Client()).items():
        if namespace.startswith("_"):
            continue
        for name, method in inspect.getmembers(operations, inspect.ismethod):
            if not name.startswith("_") and name != "wait":
                error = raised(longhaul.NotFound, call, getattr(getattr(client, namespace), name), method)
                assert error.status == 404, (namespace, name)
    sent = {tuple(line.partition("?")[0].split(" ")) for line in proxy.lines}
    assert sent == expected, sent ^ expected


def call(method: Any, described: Any) -> Any:
    """Calls a method with some value for each parameter that it needs, to its first item if it is a list or stream."""
    values: dict[str, Any] = {"version": 1, "body": {}}
    needed = {
        name: b"x" if parameter.annotation == "bytes" else values.get(name, "x")
        for name, parameter in inspect.signature(described).parameters.items()
        if parameter.default is parameter.empty
    }
    result = method(**needed)
    return next(iter(result)) if hasattr(result, "__iter__") else result


TESTS = [
    every_operation_is_sent,
    list_goes_over_all_pages,
    batch_has_a_verdict_for_each_item,
    approval_is_decided,
    question_is_answered,
    caller_runs_a_tool,
    chat_is_streamed,
    cut_chat_is_resumed,
    answer_may_be_held,
    file_comes_back,
    schedule_is_kept,
    answer_goes_back_as_a_request,
    any_request_may_be_sent,
    reads_of_an_installation_work,
]
