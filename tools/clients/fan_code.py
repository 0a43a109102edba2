"""Writes the generated half of the Python client from the OpenAPI document for fans and shops.

`onsale/client/fan_documents.py` has a type for each document that is sent or answered, `onsale/client/fan_calls.py` a
method for each operation.

Reads an OpenAPI document: its operations, and the schemas that a part of it refers to.
"""

import json
import keyword
import re
import textwrap
from collections.abc import Iterator
from typing import Any

REF = "#/components/schemas/"


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of each route."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def reachable(schemas: dict[str, Any], part: Any) -> set[str]:
    """The names of all schemas that a part of a document refers to, through others too."""
    needed, found = set[str](), referred(part)
    while found - needed:
        needed |= found
        found = set().union(*(referred(schemas[name]) for name in needed))
    return needed


def referred(part: Any) -> set[str]:
    """The names of the schemas that a part of a document names itself."""
    if isinstance(part, dict):
        here = {part["$ref"].removeprefix(REF)} if isinstance(part.get("$ref"), str) else set()
        return here.union(*map(referred, part.values()))
    return set().union(*map(referred, part)) if isinstance(part, list) else set()


WIDTH = 120
MARK = "Generated from the OpenAPI document by `make api-documents`."
ABOUT = (
    "The API for fans and shops. Each method raises `Problem`. `token` is the credential that the operation needs: a "
    "queue token, a pass, an order's token or a user's JWT; without one, the client's own. A `key` is made for each "
    "request that takes one, and kept across its retries."
)
KINDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
NAMES = {
    "post /events/{event_id}/queue/handover": "hand_over",
    "post /gate/release": "release_pass",
    "get /.well-known/jwks.json": "pass_keys",
    "get /.well-known/ticket-keys.json": "ticket_keys",
    "get /events/{event_id}/queue/lottery": "lottery",
    "get /events/{event_id}/queue/lottery/proof": "lottery_proof",
    "get /events/{event_id}/queue/preview": "preview",
    "get /problems": "problems",
    "get /events/{event_id}/queue/status": "status",
    "post /events/{event_id}/queue": "join",
    "get /events/{event_id}/queue": "line",
    "delete /events/{event_id}/queue": "leave",
    "get /events/{event_id}/queue/challenge": "challenge",
    "post /events/{event_id}/queue/pass": "claim",
    "post /events/{event_id}/queue/pass/extend": "extend_pass",
    "get /events": "events",
    "get /events/{event_id}": "event",
    "get /events/{event_id}/sections": "sections",
    "get /events/{event_id}/map": "map",
    "get /events/{event_id}/map/state": "map_state",
    "get /events/{event_id}/map/reserved": "map_reserved",
    "get /events/{event_id}/sections/{section_id}/seats": "seats",
    "get /events/{event_id}/reservations/{reservation_id}": "reservation",
    "delete /events/{event_id}/reservations/{reservation_id}": "release",
    "post /events/{event_id}/reservations/{reservation_id}/extend": "extend",
    "post /events/{event_id}/reservations/{reservation_id}/keep": "keep",
    "post /events/{event_id}/reservations/{reservation_id}/types": "change_types",
    "post /events/{event_id}/reservations": "hold",
    "post /orders/quote": "quote",
    "get /orders/events/{event_id}/prices": "prices",
    "get /payments/providers": "payment_providers",
    "get /orders": "orders",
    "post /orders": "create_order",
    "post /orders/{reference}/cancel": "cancel_order",
    "post /orders/{reference}/extend": "extend_order",
    "post /orders/{reference}/email": "correct_order_email",
    "post /orders/{reference}/names": "change_ticket_names",
    "post /orders/{reference}/payments": "pay_again",
    "get /orders/{reference}/tickets": "tickets",
    "get /orders/{reference}/tickets/{ticket_id}.svg": "ticket_svg",
    "get /orders/{reference}/tickets.pdf": "tickets_pdf",
    "get /orders/{reference}/receipt.pdf": "receipt_pdf",
    "get /orders/{reference}/event.ics": "calendar_file",
    "post /reminders": "subscribe_to_reminders",
    "post /orders/links": "mail_order_links",
    "get /orders/{reference}": "order",
    "get /events/{event_id}/sections/updates": "event_updates",
    "get /orders/{reference}/updates": "order_updates",
}
NOT_FOR_CLIENTS = {  # of proxies, payment providers, browsers and mail programs
    "get /gate/{proxy}/check", "post /webhooks/{provider}", "get /e/{event_id}/button.json", "get /problems/{slug}",
    "get /events/{event_id}/pictures/{file}", "post /orders/{reference}/key", "post /reminders/stop/{token}",
}  # fmt: skip


def documents_module(document: dict[str, Any]) -> str:
    """The source of the types."""
    source = "\n\n\n".join(_class(name, schema) for name, schema in schemas_in_order(document).items())
    return (
        f'"""What fans and shops send and are answered, as types. {MARK}"""\n\n'
        f"from typing import Any, Literal, NotRequired, TypedDict\n\n\n{source}\n"
    )


def calls_module(document: dict[str, Any]) -> str:
    """The source of the methods."""
    methods, types = [], set[str]()
    for path, verb, operation in _operations(document):
        methods.append(_method(NAMES[f"{verb} {path}"], verb, path, operation))
        types |= referred(_contents(operation))
    imports = "\n".join(f"    {name}," for name in sorted(types))
    body = "\n\n".join(methods)
    return (
        f'"""A method for each operation for fans and shops. {MARK}"""\n\n'
        "from collections.abc import AsyncGenerator\n\n"
        "from onsale.client.connection import Connection, Update, new_key, segment\n"
        f"from onsale.client.fan_documents import (\n{imports}\n)\n\n\n"
        "class Client(Connection):\n"
        f"{docstring(ABOUT, '    ')}\n{body}\n"
    )


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verb, operation in operations(document):
        if f"{verb} {path}" not in NOT_FOR_CLIENTS:
            yield path, verb, operation


def _contents(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Content that is sent, and content that is answered with success."""
    answers = [answer for status, answer in operation["responses"].items() if status < "300"]
    return [each.get("content", {}) for each in (operation.get("requestBody", {}), *answers)]


def schemas_in_order(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The schemas that clients need, each after those it refers to."""
    schemas: dict[str, dict[str, Any]] = document["components"]["schemas"]
    ordered: dict[str, dict[str, Any]] = {}

    def add(name: str) -> None:
        for other in sorted(referred(schemas[name])):
            if other not in ordered:
                add(other)
        ordered[name] = schemas[name]

    contents = [_contents(operation) for _, _, operation in _operations(document)]
    for name in sorted(reachable(schemas, contents)):
        if name not in ordered:
            add(name)
    return ordered


def _class(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    fields = {
        field: _type(value) if field in required else f"NotRequired[{_type(value)}]"
        for field, value in schema.get("properties", {}).items()
    }
    if any(not field.isidentifier() or keyword.iskeyword(field) for field in fields):
        lines = "".join(f'        "{field}": {kind},\n' for field, kind in fields.items())
        return f'{name} = TypedDict(\n    "{name}",\n    {{\n{lines}    }},\n)'
    about = docstring(schema.get("description", ""), "    ")
    lines = "\n".join(f"    {field}: {kind}" for field, kind in fields.items())
    return f"class {name}(TypedDict):\n{about}{about and chr(10)}{lines}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema.get('enum', [schema.get('const')]))}]"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {_type(values) if isinstance(values, dict) else 'Any'}]"
    return KINDS.get(str(kind), "Any")


def _method(name: str, verb: str, path: str, operation: dict[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    queries = [each for each in parameters if each["in"] == "query"]
    headers = [each["name"] for each in parameters if each["in"] == "header" and each["name"] != "Idempotency-Key"]
    keyed = any(each["name"] == "Idempotency-Key" for each in parameters)
    answered, streams = _answered(operation)
    taken, passed = ["self", *(f"{each}: str" for each in re.findall(r"{(\w+)}", path))], []
    if body := operation.get("requestBody"):
        kind = _type(body["content"]["application/json"]["schema"])
        taken.append(f"body: {kind}" if body.get("required") else f"body: {kind} | None = None")
        passed.append("body=body")
    optional = [query_parameter(each) for each in queries] + [f"{_snake(each)}: str | None = None" for each in headers]
    passed += query_argument(queries)
    sent = [f'"{each.lower()}": {_snake(each)}' for each in headers]
    if keyed:
        optional.append("key: str | None = None")
        sent.append('"idempotency-key": key or new_key()')
    if sent:
        passed.append("headers={" + ", ".join(sent) + "}")
    taken += ["*", *optional, "token: str | None = None"]
    url = re.sub(r"{(\w+)}", r"{segment(\1)}", path)
    arguments = [f'"{name}"', *([] if streams else [f'"{verb.upper()}"']), f'f"{url}"' if url != path else f'"{path}"']
    about = docstring(f"{operation['summary']}. {operation.get('description', '')}", "        ")
    head = call(f"    {'' if streams else 'async '}def {name}", taken, f" -> {answered}:")
    arguments += [*passed, "token=token"]
    if streams:
        return head + "\n" + about + call("        return self.updates", arguments)
    get = "content" if answered == "bytes" else "document"
    if answered == "None":
        return head + "\n" + about + call("        await self.document", arguments)
    asked = call(f"        answer: {answered} = await self.{get}", arguments)
    return f"{head}\n{about}{asked}\n        return answer"


def _answered(operation: dict[str, Any]) -> tuple[str, bool]:
    """The type of the successful answer, and whether it is a stream."""
    _, *answers = _contents(operation)
    content = next((each for each in answers if each), {})
    if "application/json" in content:
        return _type(content["application/json"]["schema"]), False
    if "text/event-stream" in content:
        return "AsyncGenerator[Update]", True
    return ("bytes" if content else "None"), False


def query_parameter(parameter: dict[str, Any]) -> str:
    """A query value as a parameter of a method; left out unless it is given."""
    name, kind = python_name(parameter), _type(parameter["schema"])
    return f"{name}: {kind}" if parameter.get("required") else f"{name}: {kind.removesuffix(' | None')} | None = None"


def query_argument(parameters: list[dict[str, Any]]) -> list[str]:
    """The query as an argument of a call; none if there are no values."""
    values = ", ".join(f'"{each["name"]}": {python_name(each)}' for each in parameters)
    return [f"query={{{values}}}"] if parameters else []


def python_name(parameter: dict[str, Any]) -> str:
    """`from` is a word of the language."""
    return {"from": "since", "to": "until"}.get(parameter["name"], str(parameter["name"]))


def _snake(header: str) -> str:
    return header.lower().replace("-", "_")


def call(start: str, arguments: list[str], end: str = "") -> str:
    """A call or signature as `ruff format` writes it."""
    line = f"{start}({', '.join(arguments)}){end}"
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(start) - len(start.lstrip()))
    inner = f"{indent}    {', '.join(arguments)}"
    if len(inner) <= WIDTH:
        return f"{start}(\n{inner}\n{indent}){end}"
    return f"{start}(\n" + "".join(f"{indent}    {each},\n" for each in arguments) + f"{indent}){end}"


def docstring(text: str, indent: str) -> str:
    """The text as a docstring, in lines that fit; empty for an empty text."""
    if not text:
        return ""
    text = " ".join(text.replace("\\", "\\\\").split())
    if len(indent + text) + 6 <= WIDTH:
        return f'{indent}"""{text}"""\n'
    lines = textwrap.wrap(text, WIDTH - len(indent) - 3, break_on_hyphens=False)
    return f'{indent}"""' + f"\n{indent}".join(lines) + f'\n{indent}"""\n'
