"""The generated files of the TypeScript client."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from document import Document, Operation, Parameter

FOLDER = "typescript/src/generated"
STREAMS = "typescript/src/streams.ts"
WIDTH = 120
HEADER = "// Written by `python3 clients/generate` from docs/openapi.json: do not edit.\n\n"
BASES = {"executions": "ExecutionStreams", "sessions": "SessionStreams"}
SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def files(document: Document) -> dict[str, str]:
    """Text of each file below `clients`."""
    return {f"{FOLDER}/types.ts": types_file(document), f"{FOLDER}/resources.ts": resources_file(document)}


# Types


def types_file(document: Document) -> str:
    return HEADER + "\n".join(declaration(name, document.schemas[name]) for name in sorted(document.schemas))


def declaration(name: str, schema: dict[str, Any]) -> str:
    text = docs(schema.get("description", ""), "")
    if "properties" in schema and "allOf" not in schema:
        return f"{text}export interface {name} {members(schema, '')}\n"
    kind = of(schema, "")
    line = f"export type {name} = {kind};\n"
    if len(line.rstrip()) > WIDTH and "{" not in kind:
        line = f"export type {name} =\n  | " + kind.replace(" | ", "\n  | ") + ";\n"
    return text + line


def of(schema: dict[str, Any], indent: str, prefix: str = "") -> str:
    """The type of a schema."""
    if "$ref" in schema:
        return prefix + schema["$ref"].rsplit("/", 1)[1]
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return union([of(part, indent, prefix) for part in schema[several]])
    if "allOf" in schema:
        return " & ".join(of(part, indent, prefix) for part in schema["allOf"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return union([f'"{value}"' if value is not None else "null" for value in schema["enum"]])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return union([of({**schema, "type": kind}, indent, prefix) for kind in kinds])
    if schema.get("format") == "binary":
        return "Uint8Array"
    if kinds == "array":
        items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
        return f"readonly {grouped(of(items, indent, prefix))}[]"
    if kinds == "object":
        return members(schema, indent, prefix) if "properties" in schema else record(schema, indent, prefix)
    return SIMPLE.get(kinds or "", "unknown")


def record(schema: dict[str, Any], indent: str, prefix: str) -> str:
    values = schema.get("additionalProperties")
    value = of(values, indent, prefix) if isinstance(values, dict) and values else "unknown"
    return f"{{ readonly [name: string]: {value} }}"


def grouped(kind: str) -> str:
    return f"({kind})" if re.search(r"[|&]|^readonly ", kind) and not kind.startswith("{") else kind


def union(parts: list[str]) -> str:
    different = list(dict.fromkeys(parts))
    if "unknown" in different:
        return "unknown"
    return " | ".join(sorted(different, key=lambda part: part == "null"))


def members(schema: dict[str, Any], indent: str, prefix: str = "") -> str:
    required = schema.get("required", [])
    inner = indent + "  "
    lines = ["{"]
    for name, given in schema["properties"].items():
        if text := docs(given.get("description", ""), inner):
            lines.append(text.rstrip("\n"))
        kind = of(given, inner, prefix)
        # A caller may pass `undefined` for a field that it does not know.
        lines.append(f"{inner}readonly {name}{'' if name in required else '?'}: {kind};" if name in required
                     else f"{inner}readonly {name}?: {kind} | undefined;")
    if schema.get("additionalProperties") is True:
        lines.append(f"{inner}readonly [name: string]: unknown;")
    return "\n".join([*lines, indent + "}"])


def docs(text: str, indent: str) -> str:
    """A comment of JSDoc; empty without a text."""
    text = text.strip().replace("*/", "*\\/")
    if not text:
        return ""
    one = f"{indent}/** {' '.join(text.split())} */"
    if "\n\n" not in text and len(one) <= WIDTH:
        return one + "\n"
    lines = [f"{indent}/**"]
    for paragraph in text.split("\n\n"):
        lines += [*wrap(paragraph, f"{indent} * "), f"{indent} *"]
    lines[-1] = f"{indent} */"
    return "\n".join(lines) + "\n"


def wrap(paragraph: str, indent: str) -> list[str]:
    items = paragraph.split("\n- ") if paragraph.startswith("- ") else [paragraph]
    found = []
    for item in items:
        text = "- " + item.removeprefix("- ") if paragraph.startswith("- ") else item
        other = indent + "  " if paragraph.startswith("- ") else indent
        found += textwrap.wrap(
            " ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=other,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return found


# Methods


def resources_file(document: Document) -> str:
    namespaces: dict[str, list[Operation]] = {}
    for operation in document.operations:
        namespaces.setdefault(camel(operation.namespace), []).append(operation)
    classes = [resource(document, name, operations) for name, operations in namespaces.items()]
    return (
        HEADER
        + "/** The operations of the API. */\n\n"
        + 'import { Pages } from "../pages.js";\n'
        + 'import { type KeyOptions, type RequestOptions, type Transport, inPath } from "../transport.js";\n'
        + 'import type { ServerSentEvent } from "../event_stream.js";\n'
        + 'import { ExecutionStreams, Resource, SessionStreams } from "../streams.js";\n'
        + 'import type * as types from "./types.js";\n\n'
        + "\n".join(classes)
        + "\n"
        + holder(list(namespaces))
    )


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def class_name(namespace: str) -> str:
    return namespace[0].upper() + namespace[1:]


def holder(namespaces: list[str]) -> str:
    fields = [f"  readonly {name}: {class_name(name)};" for name in namespaces]
    made = [f"    this.{name} = new {class_name(name)}(transport);" for name in namespaces]
    return "\n".join(
        ["/** All operations, by the things that they are about. */", "export class Resources {", *fields, ""]
        + ["  constructor(transport: Transport) {", *made, "  }", "}", ""]
    )


def resource(document: Document, namespace: str, operations: list[Operation]) -> str:
    # A class names its operations as the API does, and the interface of their options after it.
    lines = []
    interfaces = []
    for operation in operations:
        if operation.is_by_hand:
            continue
        is_both = {"application/json", "text/event-stream"} <= operation.media
        if "application/json" in operation.media or not is_both and "text/event-stream" not in operation.media:
            lines.append(method(document, operation, interfaces, is_stream=False))
        # The events of an execution have a method of their own.
        if "text/event-stream" in operation.media and operation.page is None:
            lines.append(method(document, operation, interfaces, is_stream=True, is_both=is_both))
    head = f"export class {class_name(namespace)} extends {BASES.get(namespace, 'Resource')} {{"
    return "\n".join([*dict.fromkeys(interfaces), head, "\n".join(lines).rstrip("\n"), "}", ""])


def options_of(operation: Operation, interfaces: list[str]) -> tuple[str, bool]:
    """The type of the options, and true if they may be absent."""
    lines = []
    is_optional = True
    for given in [*operation.in_query, *operation.in_header]:
        if given.name in ("last_event_id", "stream"):
            continue
        name = given.wire if given in operation.in_query else camel(given.name)
        kind = "number" if given.name == "wait_seconds" else of(given.schema, "  ", "types.")
        is_optional = is_optional and not given.is_required
        lines.append(docs(given.text, "  ") + f"  readonly {name}{'' if given.is_required else '?'}: {kind}"
                     + (";" if given.is_required else " | undefined;"))
    if operation.is_internal:
        is_optional = False
        lines.append("  /** One of the server's service tokens. */\n  readonly serviceToken: string;")
    if operation.takes_metadata:
        lines.append("  /** Texts that the metadata has at these keys. */\n"
                     "  readonly metadata?: Readonly<Record<string, string>> | undefined;")
    if not lines:
        return "RequestOptions", True
    if len(lines) == 1 and operation.in_header and operation.in_header[0].name == "idempotency_key":
        return "KeyOptions", True
    name = operation.id[0].upper() + operation.id[1:] + "Options"
    interfaces.append(f"export interface {name} extends RequestOptions {{\n" + "\n".join(lines) + "\n}\n")
    return name, is_optional


def method(
    document: Document, operation: Operation, interfaces: list[str], *, is_stream: bool, is_both: bool = False
) -> str:
    options, is_optional = options_of(operation, interfaces)
    signature = [f"{camel(given.name)}: {of(given.schema, '  ', '')}" for given in operation.in_path]
    if operation.body:
        is_free = operation.body_fields is not None and not any(given.is_required for given in operation.body_fields)
        signature.append(f"body: {body_type(operation)}{' = {}' if is_free and is_optional else ''}")
    if operation.is_upload:
        signature.append("content: Uint8Array")
    signature.append(f"options: {options}{' = {}' if is_optional else ''}")
    name = camel(operation.method)
    if is_stream and is_both:
        base = operation.method
        name = camel(base.replace("get_", "follow_") if base.startswith("get_") else f"stream_{base}")
    answer, call = sending(operation, is_stream)
    lines = [docs(operation.text, "  ").rstrip("\n")]
    lines += head(name, signature, answer)
    lines += [*request(document, operation, sets_stream=is_stream and is_both), f"    return {call};", "  }", ""]
    return "\n".join(lines)


def head(name: str, signature: list[str], answer: str) -> list[str]:
    line = f"  {name}({', '.join(signature)}): {answer} {{"
    if len(line) <= WIDTH:
        return [line]
    return [f"  {name}(", *(f"    {part}," for part in signature), f"  ): {answer} {{"]


def body_type(operation: Operation) -> str:
    assert operation.body
    kind = of(operation.body, "  ", "types.")
    known = {given.name for given in [*operation.in_header, *operation.in_path]}
    left_out = [given.name for given in operation.body_fields or [] if given.name in known]
    return f"Omit<{kind}, {' | '.join(chr(34) + name + chr(34) for name in left_out)}>" if left_out else kind


def sending(operation: Operation, is_stream: bool) -> tuple[str, str]:
    """The type of the result and the call."""
    if is_stream:
        return "AsyncGenerator<ServerSentEvent, void, undefined>", "this.transport.stream(request)"
    if page := operation.page:
        item = of(page.item, "  ", "types.")
        cursor = f'"{page.cursor}"' if page.cursor else "undefined"
        by_seq = ", true" if page.is_by_seq else ""
        return f"Pages<{item}>", f'new Pages<{item}>(this.transport, request, "{page.items}", {cursor}{by_seq})'
    if operation.answer:
        kind = of(operation.answer, "  ", "types.")
        return f"Promise<{kind}>", f"this.transport.json<{kind}>(request)"
    if "text/plain" in operation.media:
        return "Promise<string>", "this.transport.text(request)"
    if operation.media:
        return "Promise<Uint8Array>", "this.transport.bytes(request)"
    return "Promise<void>", "this.transport.nothing(request)"


def request(document: Document, operation: Operation, *, sets_stream: bool) -> list[str]:
    path = operation.path
    for given in operation.in_path:
        path = path.replace("{" + given.wire + "}", "${inPath(" + camel(given.name) + ")}")
    fields = [f'method: "{operation.http}"', f"path: `{path}`" if operation.in_path else f'path: "{path}"', "options"]
    query = [f"{given.wire}: options.{given.wire}" for given in operation.in_query if given.name != "stream"]
    if sets_stream and not operation.body:
        query.append("stream: true")
    if query:
        fields.append("query: { " + ", ".join(query) + " }")
    if operation.takes_metadata:
        fields.append("metadata: options.metadata")
    headers = [header(given) for given in operation.in_header if given.name not in SPECIAL_HEADERS]
    if operation.is_internal:
        headers.append('"X-Service-Token": options.serviceToken')
    if headers:
        fields.append("headers: { " + ", ".join(headers) + " }")
    if any(given.name == "idempotency_key" for given in operation.in_header):
        fields.append("key: options.idempotencyKey ?? crypto.randomUUID()")
    if any(given.name == "wait_seconds" for given in operation.in_header):
        fields.append("waitSeconds: options.waitSeconds")
    if operation.is_once:
        fields.append("isOnce: true")
    if operation.body:
        known = {given.name for given in operation.in_path}
        own = [given.name for given in operation.body_fields or [] if given.name in known]
        parts = ["...body", *own, *(["stream: true"] if sets_stream else [])]
        fields.append("body: { " + ", ".join(parts) + " }" if len(parts) > 1 else "body")
    if operation.is_upload:
        fields.append("content")
    if times := times_of(document, operation):
        fields.append("times: [" + ", ".join(f'"{time}"' for time in times) + "]")
    line = f"    const request = {{ {', '.join(fields)} }};"
    if len(line) <= WIDTH:
        return [line]
    lines = ["    const request = {"]
    for field in fields:
        lines += textwrap.wrap(f"{field},", WIDTH, initial_indent="      ", subsequent_indent="        ",
                               break_long_words=False, break_on_hyphens=False)
    return [*lines, "    };"]


SPECIAL_HEADERS = ("idempotency_key", "wait_seconds", "last_event_id")


def header(given: Parameter) -> str:
    name = given.wire if given.wire.isidentifier() else f'"{given.wire}"'
    return f"{name}: options.{camel(given.name)}"


def times_of(document: Document, operation: Operation) -> list[str]:
    """Paths of the times in a request; `*` stands for each item of a list."""
    found: list[str] = []

    def look(schema: dict[str, Any], path: str, seen: tuple[str, ...]) -> None:
        if "$ref" in schema:
            if schema["$ref"] in seen:
                return
            seen = (*seen, schema["$ref"])
        schema = document.resolve(schema)
        if schema.get("format") == "date-time":
            found.append(path.lstrip("."))
        for several in ("oneOf", "anyOf", "allOf"):
            for part in schema.get(several, []):
                look(part, path, seen)
        for name, given in schema.get("properties", {}).items():
            look(given, f"{path}.{name}", seen)
        if isinstance(schema.get("items"), dict):
            look(schema["items"], f"{path}.*", seen)

    if operation.body:
        look(operation.body, "", ())
    return [*found, *(given.wire for given in operation.in_query if given.schema.get("format") == "date-time")]
