"""Writes the generated half of the operators' Python client: a method for each row of `shared/contracts/admin`.

Parameters and texts are those of the OpenAPI document for operators, models those of the row. A method imports its
contracts when it is called: they take longer to build than most commands take to run.
"""

import re
from typing import Any

from tools.clients.admin_rows import Row, rows
from tools.clients.fan_code import MARK, call, docstring, query_argument, query_parameter
from tools.clients.schemas import operations

NOT_FOR_CLIENTS = ("/checks", "/console/session", "/stream", "/pictures/{name}")  # of `onsale doctor`, of browsers, raw
ABOUT = (
    "The API for operators. Each method raises `Problem`. A `body` is a model of `shared.contracts.admin` or a mapping "
    "of its fields. A `key` makes repeated requests one request; one is made where it is needed and missing."
)
FILES = {
    "/admin/inventory/events/{event_id}/{what}.csv": "export_stock_csv",
    "/admin/orders/export.csv": "export_orders_csv",
    "/admin/orders/events/{event_id}/tickets.csv": "export_tickets_csv",
    "/console/api/events/{event_id}/report": "export_report",
}
Rows = dict[tuple[str, str], Row]


def operators_module(document: dict[str, Any]) -> str:
    """The source of the methods."""
    known, modules, methods = rows(), set[str](), list[str]()
    for path, verb, operation in operations(document):
        if path.endswith(NOT_FOR_CLIENTS):
            continue
        if row := known.get((verb.upper(), path)):
            methods.append(_method(row, known, operation))
            modules |= set(re.findall(r"\b(\w+)\.[A-Z]\w*[a-z]\w*", methods[-1]))
        elif not any("application/json" in each.get("content", {}) for each in operation["responses"].values()):
            methods.append(_file_method(path, operation))
    admin = sorted(name for name in modules if name not in ("event_file", "lottery"))
    body = "\n\n".join(methods)
    return (
        f'"""A method for each operation for operators. {MARK}"""\n\n'
        "from collections.abc import Mapping\n"
        "from typing import TYPE_CHECKING, Any, Literal\n\n"
        "from onsale.client.connection import new_key, segment\n"
        "from onsale.client.endpoints import EndpointCalls\n\n"
        "if TYPE_CHECKING:\n"
        "    from shared.contracts import event_file, lottery\n"
        f"    from shared.contracts.admin import {', '.join(admin)}\n\n\n"
        "class Operator(EndpointCalls):\n"
        f"{docstring(ABOUT, '    ')}\n{body}\n"
    )


def _method(row: Row, known: Rows, operation: dict[str, Any]) -> str:
    values = re.findall(r"{(\w+)}", row.path)
    parameters = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    taken, passed = ["self", *(f"{each}: str" for each in values)], [f"{row.module}.{row.name}"]
    if row.body:
        taken.append(f'body: "{row.body} | Mapping[str, Any]"')
        passed.append("body")
    optional = [query_parameter(each) for each in parameters]
    keyed = any(each["name"] == "Idempotency-Key" for each in operation.get("parameters", []))
    if keyed:
        optional.append("key: str | None = None")
    taken += ["*", *optional] if optional else []
    passed += query_argument(parameters)
    if keyed:
        passed.append("key=key or new_key()")
    passed += [f"{each}={each}" for each in values]
    answer = f'"{row.answer}"' if row.answer else None
    head = call(f"    async def {_method_name(row, known)}", taken, f" -> {answer}:")
    about = docstring(f"{operation['summary']}. {operation.get('description', '')}", "        ")
    asked = call(f"        {'return ' if row.answer else ''}await self.call", passed)
    return f"{head}\n{about}        from shared.contracts.admin import {row.module}\n\n{asked}"


def _file_method(path: str, operation: dict[str, Any]) -> str:
    name = FILES[path]
    parameters = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    taken = ["self", *(f"{each}: str" for each in re.findall(r"{(\w+)}", path))]
    taken += ["*", *map(query_parameter, parameters)] if parameters else []
    address = re.sub(r"{(\w+)}", r"{segment(\1)}", path)
    passed = [f'"{name}"', '"GET"', f'f"{address}"' if address != path else f'"{path}"']
    passed += query_argument(parameters)
    about = docstring(f"{operation['summary']}. {operation.get('description', '')}", "        ")
    head, asked = call(f"    async def {name}", taken, " -> bytes:"), call("        return await self.content", passed)
    return f"{head}\n{about}{asked}"


def _method_name(row: Row, known: Rows) -> str:
    """The row's name; with its module's where several modules have one."""
    if sum(other.name == row.name for other in known.values()) == 1:
        return row.name.lower()
    verb, _, rest = row.name.lower().partition("_")
    return f"{verb}_{row.module.removesuffix('_reports')}_{rest}"
