"""The operations of the API's document, joined with the names of `clients/operations.txt`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).resolve().parent.parent
DOCUMENT = CLIENTS.parent / "docs/openapi.json"
NAMES = CLIENTS / "operations.txt"

WORKER_TAG = "worker protocol"
"""Operations with this tag are of `longhaul.worker`, and need no entry."""
HEADER_TEXTS = {
    "idempotency_key": "Makes the request once, however often it is sent; a random one when absent.",
    "wait_seconds": "Seconds to hold the answer until the execution ends, at most 60.",
}


class Mistake(Exception):
    """The document and the list of names do not fit."""


@dataclass
class Parameter:
    wire: str
    name: str
    schema: dict[str, Any]
    is_required: bool
    text: str


@dataclass
class Page:
    """A list: `items` names the list in the answer, `cursor` the parameter that continues it."""

    items: str
    item: dict[str, Any]
    cursor: str | None
    is_by_seq: bool


@dataclass
class Operation:
    id: str
    namespace: str
    method: str
    http: str
    path: str
    text: str
    in_path: list[Parameter]
    in_query: list[Parameter]
    in_header: list[Parameter]
    is_by_hand: bool
    is_once: bool
    """True if it is not repeated where it may have arrived: it costs something, and has no idempotency key."""
    is_internal: bool
    """True if the caller is authenticated by a service token."""
    takes_metadata: bool
    """True if `metadata.<key>=<text>` filters."""
    body: dict[str, Any] | None = None
    """Schema of a JSON body."""
    body_fields: list[Parameter] | None = None
    """Its fields, unless it may have any."""
    is_upload: bool = False
    answer: dict[str, Any] | None = None
    """Schema of a JSON answer."""
    media: set[str] = field(default_factory=set)
    """Media types of the answer."""
    page: Page | None = None


class Document:
    def __init__(self, document: Path = DOCUMENT, names: Path = NAMES) -> None:
        content = json.loads(document.read_text())
        self.schemas: dict[str, dict[str, Any]] = content["components"]["schemas"]
        self.operations = self._operations(content["paths"], read_names(names))
        self._leave_out_worker_schemas(content["paths"])

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema itself, or the one that it refers to."""
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def below(self, schemas: list[dict[str, Any]]) -> set[str]:
        """Names of the schemas that these refer to, at any depth."""
        found: set[str] = set()
        waiting: list[Any] = list(schemas)
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                _, is_schema, name = str(part.get("$ref", "")).partition("#/components/schemas/")
                if is_schema and name not in found:
                    found.add(name)
                    waiting.append(self.schemas[name])
                waiting.extend(part.values())
            elif isinstance(part, list):
                waiting.extend(part)
        return found

    def requested(self) -> set[str]:
        """Names of the schemas of requests."""
        return self.below([operation.body for operation in self.operations if operation.body])

    def answered(self) -> set[str]:
        """Names of the schemas of answers: those that no request has too."""
        answers = self.below([operation.answer for operation in self.operations if operation.answer])
        return answers | (self.schemas.keys() - self.requested())

    def _leave_out_worker_schemas(self, paths: dict[str, Any]) -> None:
        methods = [described for path in paths.values() for described in path.values()]
        of_workers = [described for described in methods if WORKER_TAG in described.get("tags", [])]
        others = [described for described in methods if WORKER_TAG not in described.get("tags", [])]
        for name in self.below(of_workers) - self.below(others):
            del self.schemas[name]

    def _operations(self, paths: dict[str, Any], names: dict[str, tuple[str, str]]) -> list[Operation]:
        found = []
        missing = []
        unused = dict(names)
        for path, methods in paths.items():
            for http, described in methods.items():
                name = described["operationId"]
                if WORKER_TAG in described.get("tags", []):
                    continue
                if name not in names:
                    missing.append(f"{name} ({http.upper()} {path})")
                    continue
                method, note = unused.pop(name)
                if method:
                    found.append(self._operation(method, note, http, path, described))
        if missing:
            raise Mistake(f"operations without a method, to be added to {NAMES}: {', '.join(missing)}")
        if unused:
            raise Mistake(f"{NAMES} names operations that the document does not have: {', '.join(unused)}")
        order = list(names)
        return sorted(found, key=lambda operation: order.index(operation.id))

    def _operation(self, method: str, note: str, http: str, path: str, described: dict[str, Any]) -> Operation:
        namespace, _, name = method.partition(".")
        # Some operations list a header twice.
        parameters = list({(given["in"], given["name"]): given for given in described.get("parameters", [])}.values())
        text = described["summary"]
        if more := described.get("description"):
            text += "\n\n" + more
        operation = Operation(
            id=described["operationId"],
            namespace=namespace,
            method=name,
            http=http.upper(),
            path=path,
            text=text,
            in_path=[path_parameter(path, given) for given in parameters if given["in"] == "path"],
            in_query=[parameter(given, given["name"]) for given in parameters if given["in"] == "query"],
            in_header=[parameter(given, header_name(given["name"])) for given in parameters if given["in"] == "header"],
            is_by_hand=note == "hand",
            is_once=note == "once",
            is_internal=path.startswith("/v1/internal/"),
            takes_metadata="metadata.<key>" in text,
        )
        # The order of a path is that of its places.
        operation.in_path.sort(key=lambda given: path.index("{" + given.wire + "}"))
        self._set_body(operation, described)
        self._set_answer(operation, described, note)
        return operation

    def _set_body(self, operation: Operation, described: dict[str, Any]) -> None:
        for media, content in described.get("requestBody", {}).get("content", {}).items():
            if media != "application/json":
                operation.is_upload = True
                continue
            operation.body = content["schema"]
            schema = self.resolve(operation.body)
            if schema.get("additionalProperties") is True:
                continue
            required = schema.get("required", [])
            operation.body_fields = [
                Parameter(name, name, given, name in required, given.get("description", ""))
                for name, given in schema.get("properties", {}).items()
            ]

    def _set_answer(self, operation: Operation, described: dict[str, Any], note: str) -> None:
        for status, answer in described["responses"].items():
            if not status.startswith("2"):
                continue
            for media, content in answer.get("content", {}).items():
                operation.media.add(media)
                if media == "application/json":
                    operation.answer = content["schema"]
        if operation.http == "GET" and operation.answer:
            operation.page = self._page(operation, self.resolve(operation.answer), note == "by seq")

    def _page(self, operation: Operation, schema: dict[str, Any], is_by_seq: bool) -> Page | None:
        fields = schema.get("properties", {})
        lists = [name for name, given in fields.items() if given.get("type") == "array"]
        cursors = [given.name for given in operation.in_query if f"next_{given.name}" in fields]
        others = fields.keys() - set(lists) - {f"next_{name}" for name in cursors}
        if is_by_seq:
            return Page(lists[0], fields[lists[0]]["items"], "after", True)
        if len(lists) != 1 or others or len(cursors) > 1:
            return None
        return Page(lists[0], fields[lists[0]]["items"], cursors[0] if cursors else None, False)


def read_names(names: Path) -> dict[str, tuple[str, str]]:
    """Method and note of each operation. The method is empty where there is none."""
    found: dict[str, tuple[str, str]] = {}
    for line in names.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        operation, rest = line.split(maxsplit=1)
        if rest.startswith("not here: "):
            found[operation] = ("", rest)
            continue
        method, *notes = rest.split(maxsplit=1)
        note = notes[0].strip() if notes else ""
        if note not in ("", "hand", "once", "by seq"):
            raise Mistake(f"{NAMES}: {operation} has an unknown note: {note}")
        found[operation] = (method, note)
    methods = [method for method, _ in found.values() if method]
    if twice := {method for method in methods if methods.count(method) > 1}:
        raise Mistake(f"{NAMES}: methods that occur twice: {', '.join(sorted(twice))}")
    return found


def parameter(given: dict[str, Any], name: str) -> Parameter:
    text = HEADER_TEXTS.get(name, given.get("description", ""))
    return Parameter(given["name"], name, given["schema"], given.get("required", False), text)


def header_name(wire: str) -> str:
    """Name of a header's parameter: `Longhaul-Run` is `run`."""
    if wire == "Prefer":
        return "wait_seconds"
    return re.sub("^(longhaul|x)-", "", wire.lower()).replace("-", "_")


def path_parameter(path: str, given: dict[str, Any]) -> Parameter:
    """A parameter in a path. An `id` is named after the things that it is of: `execution_id`."""
    name: str = given["name"]
    if name == "id":
        things = re.search(r"([a-z-]+)/\{id\}", path)
        assert things
        thing = things[1].replace("-", "_")
        name = thing.removesuffix("s") + "_id"
    return Parameter(given["name"], name, given["schema"], True, given.get("description", ""))
