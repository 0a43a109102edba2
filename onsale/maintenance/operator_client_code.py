"""Writes the generated half of the operators' Python client: a method for each row of `shared/contracts/admin`.

Parameters and texts are those of the OpenAPI document for operators, models those of the row. A method imports its
contracts when it is called: they take longer to build than most commands take to run.
"""

import importlib
import re
from typing import Any, get_args

from onsale.maintenance.client_code import MARK, call, docstring, query_argument, query_parameter
from shared.contracts.admin.endpoint import Endpoint
from shared.web.api_document import operations

CONTRACTS = ("queue", "inventory", "orders", "prices", "order_reports", "console", "approvals")
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
Row = tuple[str, str, Endpoint[Any]]


def operators_module(document: dict[str, Any]) -> str:
    """The source of the methods."""
    rows, modules, methods = _rows(), set[str](), list[str]()
    for path, verb, operation in operations(document):
        if path.endswith(NOT_FOR_CLIENTS):
            continue
        if row := rows.get((verb.upper(), path)):
            methods.append(_method(row, rows, operation))
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


def _rows() -> dict[tuple[str, str], Row]:
    """The rows by method and path, with their modules and names."""
    found: dict[tuple[str, str], Row] = {}
    for module in CONTRACTS:
        for name, each in vars(importlib.import_module(f"shared.contracts.admin.{module}")).items():
            if isinstance(each, Endpoint):
                found[each.method, each.path] = module, name, each
    return found


def _method(row: Row, rows: dict[tuple[str, str], Row], operation: dict[str, Any]) -> str:
    module, constant, endpoint = row
    values = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    taken, passed = ["self", *(f"{each}: str" for each in values)], [f"{module}.{constant}"]
    if endpoint.body:
        taken.append(f'body: "{_model(endpoint.body)} | Mapping[str, Any]"')
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
    nothing = endpoint.answer is type(None)
    head = call(f"    async def {_method_name(row, rows)}", taken, f" -> {'None' if nothing else _answer(endpoint)}:")
    about = docstring(f"{operation['summary']}. {operation.get('description', '')}", "        ")
    asked = call(f"        {'' if nothing else 'return '}await self.call", passed)
    return f"{head}\n{about}        from shared.contracts.admin import {module}\n\n{asked}"


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


def _method_name(row: Row, rows: dict[tuple[str, str], Row]) -> str:
    """The row's name; with its module's where several modules have one."""
    module, constant, _ = row
    if sum(other == constant for _, other, _ in rows.values()) == 1:
        return constant.lower()
    verb, _, rest = constant.lower().partition("_")
    return f"{verb}_{module.removesuffix('_reports')}_{rest}"


def _answer(endpoint: Endpoint[Any]) -> str:
    return '"' + " | ".join(map(_model, get_args(endpoint.answer) or (endpoint.answer,))) + '"'


def _model(model: type[Any]) -> str:
    return f"{model.__module__.rpartition('.')[2]}.{model.__name__}"
