"""The generated files of the Python client."""

from __future__ import annotations

import keyword
import re
import textwrap
from typing import Any

from document import CLIENTS, Document, Operation, Parameter

PACKAGE = "python/src/longhaul"
STREAMS = f"{PACKAGE}/_async/streams.py"
WIDTH = 120
HEADER = "# Written by `python3 clients/generate` from docs/openapi.json: do not edit.\n"
BASES = {"executions": "AsyncExecutionStreams", "sessions": "AsyncSessionStreams"}
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
SYNC_NAMES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basync_sleep\b", "sync_sleep"),
    (r"\b__a(iter|enter|exit)__\b", r"__\1__"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\b(aiter_bytes|aread|aclose|aclosing)\b", lambda found: found[1][1:]),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"A client for asyncio\.", "A client for code without an event loop. May be shared between threads."),
]


def files(document: Document) -> dict[str, str]:
    """Text of each file below `clients`."""
    resources = resources_file(document)
    found = {
        f"{PACKAGE}/types.py": types_file(document),
        f"{PACKAGE}/params.py": params_file(document),
        f"{PACKAGE}/_async/resources.py": resources,
        f"{PACKAGE}/_sync/resources.py": to_sync(resources),
        f"{PACKAGE}/_sync/__init__.py": HEADER + '"""The client without an event loop, derived from `_async`."""\n',
    }
    for name in ("client", "pages", "streams", "transport"):
        text = (CLIENTS / PACKAGE / "_async" / f"{name}.py").read_text()
        header = f"# Written by `python3 clients/generate` from _async/{name}.py: do not edit.\n"
        found[f"{PACKAGE}/_sync/{name}.py"] = header + to_sync(text)
    return found


def to_sync(text: str) -> str:
    for pattern, replacement in SYNC_NAMES:
        text = re.sub(pattern, replacement, text)
    return text


# Types


class Types:
    """Type expressions for schemas, in one of the two modules."""

    def __init__(self, document: Document, *, is_request: bool, prefix: str = "", enums: str = "types.") -> None:
        self.document = document
        self.is_request = is_request
        self.prefix = prefix
        self.enums = enums if is_request else prefix
        self.inline: dict[str, dict[str, Any]] = {}
        """Objects without a name of their own, by the name that they get."""

    def of(self, schema: dict[str, Any], name: str) -> str:
        """The type of a schema; `name` is for an object that has none."""
        if "$ref" in schema:
            return self.named(schema["$ref"].rsplit("/", 1)[1])
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return self.union([self.of(part, name + variant(part)) for part in schema[several]])
        if "allOf" in schema:
            return self.of(schema["allOf"][0], name)
        if "const" in schema:
            return f'Literal["{schema["const"]}"]'
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self.union([self.of({**schema, "type": kind}, name) for kind in kinds])
        if kinds == "string" and "enum" in schema:
            return "Literal[" + ", ".join(f'"{value}"' for value in schema["enum"] if value is not None) + "]"
        if kinds == "string" and schema.get("format") == "date-time":
            return "datetime"
        if kinds == "array":
            items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
            return f"{'Sequence' if self.is_request else 'list'}[{self.of(items, name)}]"
        if kinds == "object":
            return self.object(schema, name)
        return SIMPLE.get(kinds or "", "Any")

    def object(self, schema: dict[str, Any], name: str) -> str:
        if "properties" in schema:
            self.inline[name] = schema
            return self.prefix + name
        values = schema.get("additionalProperties")
        value = self.of(values, name) if isinstance(values, dict) and values else "Any"
        return f"{'Mapping' if self.is_request else 'dict'}[str, {value}]"

    def named(self, name: str) -> str:
        schema = self.document.schemas[name]
        if schema.get("additionalProperties") is True and len(schema.get("properties", {})) == 1:
            # Any object: one field is named as an example.
            return f"{'Mapping' if self.is_request else 'dict'}[str, Any]"
        if is_free(schema):
            return self.of(schema, name)
        if is_enum(schema):
            return self.enums + name
        return self.prefix + name

    def union(self, parts: list[str]) -> str:
        different = list(dict.fromkeys(parts))
        if "Any" in different:
            return "Any"
        # None comes last, as people write it.
        different.sort(key=lambda part: part == "None")
        return " | ".join(different)


def is_enum(schema: dict[str, Any]) -> bool:
    return "enum" in schema


def is_free(schema: dict[str, Any]) -> bool:
    """True for an object without fields."""
    return schema.get("type") == "object" and not schema.get("properties") and "allOf" not in schema


def is_class(schema: dict[str, Any]) -> bool:
    return bool(schema.get("properties")) or "allOf" in schema


def variant(schema: dict[str, Any]) -> str:
    """A name for one of several objects, after its constant field."""
    for given in schema.get("properties", {}).values():
        if "const" in given:
            return str(given["const"]).title().replace("_", "")
    return ""


def types_file(document: Document) -> str:
    types = Types(document, is_request=False)
    names = document.answered()
    requested = document.requested()
    enums = [name for name in document.schemas if is_enum(document.schemas[name])]
    parts = [alias(name, document.schemas[name], types) for name in sorted(enums)]
    for name in ordered(document, names):
        schema = document.schemas[name]
        if is_class(schema):
            parts += with_inline(types, name, schema, model)
        elif not is_enum(schema) and not is_free(schema) and name not in requested | {"Bytes"}:
            parts.append(alias(name, schema, types))
    shared = [name for name in ("Usd", "ToolRef", "ValidatorRef") if name in document.schemas]
    aliases = [alias(name, document.schemas[name], types) for name in shared]
    return (
        HEADER
        + '"""Objects of answers."""\n\nfrom __future__ import annotations\n\nfrom datetime import datetime\n'
        + "from typing import Any, Literal\n\nfrom ._model import Model\n\n"
        + "\n".join(parts[: len(enums)])
        + "\n\n"
        + "\n\n".join(parts[len(enums) :])
        + "\n\n"
        + "\n".join(aliases)
    )


def params_file(document: Document) -> str:
    types = Types(document, is_request=True)
    names = document.requested()
    classes: list[str] = []
    aliases: list[str] = []
    for name in ordered(document, names):
        schema = document.schemas[name]
        if is_class(schema):
            classes += with_inline(types, name, schema, typed_dict)
        elif not is_enum(schema) and not is_free(schema) and name != "Bytes":
            aliases.append(alias(name, schema, types))
            classes += [typed_dict(key, types.inline[key], types) for key in sorted(types.inline)]
            types.inline.clear()
    submit = next(operation for operation in document.operations if operation.id == "submitExecution")
    fields = {given.name: given.schema for given in body_fields(submit)}
    classes.append(typed_dict("Submit", {"properties": fields, "description": "Fields of a submit."}, types))
    return (
        HEADER
        + '"""Objects of requests."""\n\nfrom __future__ import annotations\n\n'
        + "from collections.abc import Mapping, Sequence\nfrom datetime import datetime\n"
        + "from typing import Any, Literal\n\nfrom typing_extensions import NotRequired, TypedDict\n\n"
        + "from . import types\n\n\n"
        + "\n\n".join(classes)
        + "\n\n"
        + "\n".join(aliases)
    )


def with_inline(types: Types, name: str, schema: dict[str, Any], write: Any) -> list[str]:
    """The class, and before it those of the objects in it that have no name."""
    found = write(name, schema, types)
    inline = [write(key, types.inline[key], types) for key in sorted(types.inline)]
    types.inline.clear()
    return [*inline, found]


def ordered(document: Document, names: set[str]) -> list[str]:
    """Names by the alphabet, bases before what is made of them."""
    found: list[str] = []

    def add(name: str) -> None:
        if name in found or name not in names:
            return
        for part in document.schemas[name].get("allOf", []):
            if "$ref" in part:
                add(part["$ref"].rsplit("/", 1)[1])
        found.append(name)

    for name in sorted(names):
        add(name)
    return found


def alias(name: str, schema: dict[str, Any], types: Types) -> str:
    kind = types.of({key: value for key, value in schema.items() if key != "description"}, name)
    text = f"{name} = {kind}"
    if len(text) > WIDTH:
        head, _, rest = kind.partition("[")
        text = f"{name} = {head}[\n" + "".join(f"    {part},\n" for part in rest[:-1].split(", ")) + "]"
    return text + "\n" + docs(schema.get("description", ""), "")


def model(name: str, schema: dict[str, Any], types: Types) -> str:
    bases, fields, required = flat(schema)
    lines = [f"class {name}({', '.join(bases) or 'Model'}):", *class_docs(schema)]
    # Required fields first, as those of a call without names would be.
    for field in sorted(fields, key=lambda field: field not in required):
        kind = types.of(fields[field], name + field.title().replace("_", ""))
        if field not in required:
            kind = f"{types.union([*kind.split(' | '), 'None'])} = None"
        lines.append(f"    {python_name(field)}: {kind}")
        lines += docs(fields[field].get("description", ""), "    ").splitlines()
    return "\n".join(lines) + "\n"


def typed_dict(name: str, schema: dict[str, Any], types: Types) -> str:
    _, fields, required = flat(schema)
    if any(keyword.iskeyword(field) for field in fields):
        raise ValueError(f"{name} has a field that Python reserves")
    lines = [f"class {name}(TypedDict):", *class_docs(schema)]
    for field in sorted(fields, key=lambda field: field not in required):
        kind = types.of(fields[field], name + field.title().replace("_", ""))
        lines.append(f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}")
        lines += docs(fields[field].get("description", ""), "    ").splitlines()
    return "\n".join(lines) + "\n"


def flat(schema: dict[str, Any]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Bases, own fields and the required ones of them."""
    bases: list[str] = []
    fields: dict[str, Any] = dict(schema.get("properties", {}))
    required: list[str] = list(schema.get("required", []))
    for part in schema.get("allOf", []):
        if "$ref" in part:
            bases.append(part["$ref"].rsplit("/", 1)[1])
        else:
            fields.update(part.get("properties", {}))
            required += part.get("required", [])
    return bases, fields, required


def python_name(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def class_docs(schema: dict[str, Any]) -> list[str]:
    text = docs(schema.get("description", ""), "    ")
    return [*text.splitlines(), ""] if text else []


def docs(text: str, indent: str) -> str:
    """A docstring; empty without a text."""
    text = text.strip().replace("\\", "\\\\").replace('"""', "'''")
    if not text:
        return ""
    if text.endswith('"'):
        text += " "
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [*wrap(paragraph, indent), ""]
    lines.pop()
    first = f'{indent}"""{lines[0].strip()}'
    if len(lines) == 1 and len(first) + 3 <= WIDTH:
        return first + '"""\n'
    return "\n".join([first, *lines[1:]]) + f'\n{indent}"""\n'


def wrap(paragraph: str, indent: str) -> list[str]:
    if paragraph.startswith("- "):
        found: list[str] = []
        for item in paragraph.split("\n- "):
            item = "- " + item.removeprefix("- ")
            found += fill(item, indent, indent + "  ", 0)
        return found
    return fill(paragraph, indent, indent, 3)


def fill(text: str, first: str, other: str, quotes: int) -> list[str]:
    # The first line of a docstring has its quotes before it.
    return textwrap.wrap(
        " ".join(text.split()), WIDTH - quotes, initial_indent=first, subsequent_indent=other,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


# Methods


def resources_file(document: Document) -> str:
    namespaces: dict[str, list[Operation]] = {}
    for operation in document.operations:
        namespaces.setdefault(operation.namespace, []).append(operation)
    parts = [resource(document, name, operations) for name, operations in namespaces.items()]
    return (
        HEADER
        + '"""The operations of the API."""\n\nfrom __future__ import annotations\n\n'
        + "from collections.abc import AsyncIterator, Mapping, Sequence\nfrom datetime import datetime\n"
        + "from typing import Any\n\nfrom .. import params\nfrom .. import types as t\n"
        + "from .._request import Request, in_path, new_key\nfrom ..event_stream import ServerSentEvent\n"
        + "from .pages import AsyncPages\n"
        + "from .streams import AsyncExecutionStreams, AsyncResource, AsyncSessionStreams\n"
        + "from .transport import AsyncTransport\n\n\n"
        + "\n\n".join(parts)
        + "\n\n"
        + holder(list(namespaces))
    )


def class_name(namespace: str) -> str:
    return "Async" + namespace.title().replace("_", "")


def holder(namespaces: list[str]) -> str:
    lines = [
        "class AsyncResources:",
        '    """All operations, by the things that they are about."""',
        "",
        "    def __init__(self, transport: AsyncTransport) -> None:",
    ]
    lines += [f"        self.{name} = {class_name(name)}(transport)" for name in namespaces]
    return "\n".join(lines) + "\n"


def resource(document: Document, namespace: str, operations: list[Operation]) -> str:
    lines = [f"class {class_name(namespace)}({BASES.get(namespace, 'AsyncResource')}):"]
    for operation in operations:
        if operation.is_by_hand:
            continue
        is_both = {"application/json", "text/event-stream"} <= operation.media
        if "application/json" in operation.media or not is_both and "text/event-stream" not in operation.media:
            lines += [*method(document, operation, is_stream=False), ""]
        # The events of an execution have a method of their own.
        if "text/event-stream" in operation.media and operation.page is None:
            lines += [*method(document, operation, is_stream=True, is_both=is_both), ""]
    return "\n".join(lines)


def body_fields(operation: Operation) -> list[Parameter]:
    """Fields of the body that are parameters of the method."""
    other = {given.name for given in operation.in_header}
    in_path = {given.name for given in operation.in_path}
    return [given for given in operation.body_fields or [] if given.name not in other | in_path]


def method(document: Document, operation: Operation, *, is_stream: bool, is_both: bool = False) -> list[str]:
    asked = Types(document, is_request=True, prefix="params.", enums="t.")
    headers = [given for given in operation.in_header if given.name != "last_event_id"]
    query = [given for given in operation.in_query if given.name != "stream"]
    fields = body_fields(operation)
    named = sorted([*fields, *query], key=lambda given: not given.is_required) + headers
    signature = ["self", *(f"{given.name}: {path_type(given)}" for given in operation.in_path)]
    described = []
    if operation.body and operation.body_fields is None:
        signature.append(f"body: {asked.of(operation.body, '')}")
    if operation.is_upload:
        signature.append("content: bytes")
    if named or operation.is_internal or operation.takes_metadata:
        signature.append("*")
    if operation.is_internal:
        signature.append("service_token: str")
        described.append("- `service_token`: One of the server's service tokens.")
    for given in sorted(named, key=lambda given: not given.is_required):
        kind = parameter_type(asked, operation, given)
        if not given.is_required:
            kind = f"{asked.union([*kind.split(' | '), 'None'])} = None"
        signature.append(f"{python_name(given.name)}: {kind}")
        if given.text:
            described.append(f"- `{python_name(given.name)}`: {' '.join(given.text.split())}")
    if operation.takes_metadata:
        signature.append("metadata: Mapping[str, str] | None = None")
        described.append("- `metadata`: Texts that the metadata has at these keys.")
    name = operation.method
    if is_stream and is_both:
        name = name.replace("get_", "follow_") if name.startswith("get_") else f"stream_{name}"
    call, answer, is_async = sending(document, operation, is_stream)
    text = operation.text + ("\n\n" + "\n".join(described) if described else "")
    lines = head(name, signature, answer, is_async)
    lines += docs(text, " " * 8).splitlines()
    lines += request_lines(operation, headers, query, fields, sets_stream=is_both)
    lines.append(f"        return {call}")
    return lines


def head(name: str, signature: list[str], answer: str, is_async: bool) -> list[str]:
    define = "async def" if is_async else "def"
    line = f"    {define} {name}({', '.join(signature)}) -> {answer}:"
    if len(line) <= WIDTH:
        return [line]
    one = f"        {', '.join(signature)}"
    if len(one) <= WIDTH - 8:
        return [f"    {define} {name}(", one, f"    ) -> {answer}:"]
    return [f"    {define} {name}(", *(f"        {part}," for part in signature), f"    ) -> {answer}:"]


def path_type(given: Parameter) -> str:
    return "int" if given.schema.get("type") == "integer" else "str"


def parameter_type(types: Types, operation: Operation, given: Parameter) -> str:
    if given.name == "wait_seconds":
        return "int"
    body = operation.body or {}
    owner = body.get("$ref", "").rsplit("/", 1)[-1]
    return types.of(given.schema, owner + given.name.title().replace("_", ""))


def sending(document: Document, operation: Operation, is_stream: bool) -> tuple[str, str, bool]:
    """The call, its type, and True if it is awaited."""
    answers = Types(document, is_request=False, prefix="t.")
    if is_stream:
        return "self._transport.stream(request)", "AsyncIterator[ServerSentEvent]", False
    if page := operation.page:
        item = answers.of(page.item, "")
        cursor = f'"{page.cursor}"' if page.cursor else "None"
        by_seq = ", is_by_seq=True" if page.is_by_seq else ""
        call = f'AsyncPages(self._transport, request, {item}, "{page.items}", {cursor}{by_seq})'
        return call, f"AsyncPages[{item}]", False
    if operation.answer:
        kind = answers.of(operation.answer, "")
        return f"await self._transport.call(request, {kind})", kind, True
    if "text/plain" in operation.media:
        return "await self._transport.call_text(request)", "str", True
    if operation.media:
        return "await self._transport.call_bytes(request)", "bytes", True
    return "await self._transport.call_none(request)", "None", True


def request_lines(
    operation: Operation,
    headers: list[Parameter],
    query: list[Parameter],
    fields: list[Parameter],
    *,
    sets_stream: bool,
) -> list[str]:
    path = operation.path
    for given in operation.in_path:
        path = path.replace("{" + given.wire + "}", "{in_path(" + given.name + ")}")
    arguments = [f'"{operation.http}"', f'{"f" if operation.in_path else ""}"{path}"']
    asked = [f'"{given.wire}": {python_name(given.name)}' for given in query]
    if sets_stream and not operation.body:
        asked.append('"stream": True')
    if asked:
        arguments.append("query={" + ", ".join(asked) + "}")
    if operation.takes_metadata:
        arguments.append("metadata=metadata")
    sent = [f'"{given.wire}": {header_value(given)}' for given in headers if given.name != "wait_seconds"]
    if operation.is_internal:
        sent.append('"X-Service-Token": service_token')
    if sent:
        arguments.append("headers={" + ", ".join(sent) + "}")
    if operation.body and operation.body_fields is None:
        arguments.append('body={**body, "stream": True}' if sets_stream else "body=body")
    elif operation.body_fields is not None:
        in_path = {given.name for given in operation.in_path}
        own = [given for given in operation.body_fields if given.name in in_path]
        required = [f'"{given.wire}": {given.name}' for given in [*own, *fields] if given.is_required or given in own]
        optional = [f'"{given.wire}": {given.name}' for given in fields if not given.is_required]
        arguments.append("body={" + ", ".join(required) + "}")
        if optional:
            arguments.append("optional={" + ", ".join(optional) + "}")
    if operation.is_upload:
        arguments.append("content=content")
    if any(given.name == "wait_seconds" for given in headers):
        arguments.append("wait_seconds=wait_seconds")
    if operation.is_once:
        arguments.append("is_once=True")
    line = f"        request = Request({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return [line]
    lines = ["        request = Request("]
    for argument in arguments:
        if len(argument) + 13 <= WIDTH:
            lines.append(f"            {argument},")
            continue
        name, _, entries = argument.partition("={")
        lines.append(f"            {name}={{")
        lines += [f"                {entry}," for entry in entries[:-1].split(", ")]
        lines.append("            },")
    return [*lines, "        )"]


def header_value(given: Parameter) -> str:
    return "new_key(idempotency_key)" if given.name == "idempotency_key" else given.name
