"""Writes the operators' calls, `shared/contracts/admin/operator_calls.py`: a row and a method for each operation.

The name of an operation is its `operationId`. Its models are looked for in the sources: a build has no pydantic to
import them with. Those of a feature have no type here, as nothing knows a feature: a row names where its module is, for
when an answer is read.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tools.clients.fan_code import MARK, REF, call, docstring, operations, query_argument, query_parameter

ROOT = Path(__file__).parents[2]
SOURCES = ("shared/contracts/**/*.py", "features/**/*.py")
NOT_FOR_CLIENTS = {"sign_in", "sign_out", "stream_event"}  # of browsers
OF_FANS = {  # what operators' programs read of the other document, and the model that suffices where it is not shared
    "/events": ("list_events_on_sale", None),
    "/events/{event_id}": ("read_event_on_sale", None),
    "/events/{event_id}/queue/preview": ("read_preview", "FanView"),
    "/payments/providers": ("read_providers", "OfferedProviders"),
}
ABOUT = (
    "The API for operators. A `body` is a model or a mapping of its fields. A `key` makes repeated requests one "
    "request."
)
FILE = "bytes"
PATH_KINDS = {"integer": "int"}
CURSORS = {name: f"{name}: str | int | None = None" for name in ("before", "after")}  # as the last page says it


class _Found(NamedTuple):
    """An operation; `answer` and `body` are names of models, or `bytes`."""

    name: str
    method: str
    path: str
    answer: list[str]
    body: list[str]
    parameters: list[dict[str, Any]]
    about: str
    control: str

    @property
    def takes_key(self) -> bool:
        return any(each["name"] == "Idempotency-Key" for each in self.parameters)


def operators_module(document: dict[str, Any], fans: dict[str, Any]) -> str:
    """The source of the table and of the methods."""
    found = [*_of_operators(document), *_of_fans(fans)]
    names = {name for each in found for name in (*each.answer, *each.body) if name != FILE and not _of_a_feature(name)}
    modules = {_module_of(name) for name in names}
    imports = "\n".join(
        f"    from {module} import {', '.join(sorted(name for name in names if _module_of(name) == module))}"
        for module in sorted(modules)
    )
    rows, methods = "\n".join(map(_row, found)), "\n\n".join(map(_method, found))
    return (
        f'"""The operations for operators, and a method for each. {MARK}"""\n\n'
        "from collections.abc import Mapping\n"
        "from typing import TYPE_CHECKING, Any, Literal\n\n"
        "from shared.contracts.admin.operation import AdminOperation, Control, OperationCalls\n\n"
        f"if TYPE_CHECKING:\n{imports}\n\n"
        f"OPERATIONS: dict[str, AdminOperation] = {{\n{rows}\n}}\n\n\n"
        "class OperatorCalls(OperationCalls):\n"
        f"{docstring(ABOUT, '    ')}\n{methods}\n"
    )


def _of_operators(document: dict[str, Any]) -> Iterator[_Found]:
    for path, verb, operation in operations(document):
        if operation["operationId"] not in NOT_FOR_CLIENTS:
            yield _found(operation["operationId"], verb, path, operation, _control(operation))


def _control(operation: dict[str, Any]) -> str:
    """The control that can be made to need a second person, as code; empty if it is none."""
    if not (control := operation.get("x-onsale-control")):
        return ""
    arguments = [control["name"], operation["security"][0]["adminKey"][0], control.get("action")]
    return f"Control({', '.join(json.dumps(each) for each in arguments if each)})"


def _of_fans(document: dict[str, Any]) -> Iterator[_Found]:
    for path, (name, model) in OF_FANS.items():
        found = _found(name, "get", path, document["paths"][path]["get"], "")
        yield found._replace(answer=[model]) if model else found


def _found(name: str, verb: str, path: str, operation: dict[str, Any], control: str) -> _Found:
    answers = [each for status, each in operation["responses"].items() if status < "300"]
    return _Found(
        name, verb.upper(), path, answer=_models(answers), body=_models([operation.get("requestBody", {})]),
        parameters=operation.get("parameters", []), control=control,
        about=f"{operation['summary']}. {operation.get('description', '')}",
    )  # fmt: skip


def _models(parts: list[dict[str, Any]]) -> list[str]:
    """The models of these bodies or answers, `bytes` for any other content."""
    contents = [content for part in parts for content in part.get("content", {}).items()]
    schemas = [content["schema"] for kind, content in contents if kind == "application/json"]
    if contents and not schemas:
        return [FILE]
    return sorted({each["$ref"].removeprefix(REF) for schema in schemas for each in schema.get("anyOf", [schema])})


@cache
def _homes() -> dict[str, str]:
    """The modules of all classes of the contracts."""
    files = [file for pattern in SOURCES for file in sorted(ROOT.glob(pattern))]
    return {
        name: ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }


def _module_of(model: str) -> str:
    return _homes()[model]


def _of_a_feature(model: str) -> bool:
    return _homes().get(model, "").startswith("features.")


def _type(models: list[str]) -> str:
    return "Any" if any(map(_of_a_feature, models)) else " | ".join(models)


def _row(found: _Found) -> str:
    answer, body = (
        FILE if names == [FILE] else "|".join(f"{_module_of(name)}:{name}" for name in names)
        for names in (found.answer, found.body)
    )
    more = {
        "answer": json.dumps(answer) if answer else "", "body": json.dumps(body) if body else "",
        "takes_key": "True" if found.takes_key else "", "control": found.control,
    }  # fmt: skip
    arguments = [f'"{found.method}"', f'"{found.path}"', *(f"{name}={code}" for name, code in more.items() if code)]
    return call(f'    "{found.name}": AdminOperation', arguments, ",")


def _method(found: _Found) -> str:
    values = [each for each in found.parameters if each["in"] == "path"]
    queries = [each for each in found.parameters if each["in"] == "query"]
    taken = ["self", *(f"{each['name']}: {PATH_KINDS.get(each['schema'].get('type'), 'str')}" for each in values)]
    passed = [f'"{found.name}"']
    if found.body:
        kind = _type(found.body)
        taken.append("body: bytes" if kind == FILE else f'body: "{kind} | Mapping[str, Any]"')
        passed.append("body")
    optional = [CURSORS.get(each["name"]) or query_parameter(each) for each in queries]
    passed += query_argument(queries)
    if found.takes_key:
        optional.append("key: str | None = None")
        passed.append("key=key")
    taken += ["*", *optional] if optional else []
    passed += [f"{each['name']}={each['name']}" for each in values]
    answer = _type(found.answer)
    kind = answer if answer in ("", FILE) else f'"{answer}"'
    head = call(f"    async def {found.name}", taken, f" -> {kind or None}:")
    asked = call(f"        {f'answer: {answer} = ' if answer else ''}await self.call", passed)
    return f"{head}\n{docstring(found.about, '        ')}{asked}" + ("\n        return answer" if answer else "")
