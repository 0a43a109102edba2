"""The tables of admin endpoints in `shared/contracts/admin` list exactly the endpoints of the OpenAPI documents."""

import importlib
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, get_args

import pytest

from shared.contracts.admin import inventory, order_reports, orders, prices, queue
from shared.contracts.admin.checks import READ_CHECKS
from shared.contracts.admin.endpoint import Endpoint
from shared.routes import Service

Row = tuple[str, str, frozenset[str], frozenset[str], bool]
TABLES: dict[Service, tuple[ModuleType, ...]] = {
    "queue": (queue,),
    "inventory": (inventory,),
    "orders": (orders, prices, order_reports),
}
JSON = "application/json"
CHANGES_NOTHING = (queue.PLAN_CAPACITY,)


@cache
def document_of(service: Service) -> dict[str, Any]:
    document: dict[str, Any] = importlib.import_module(f"services.{service}.app").create_app().openapi()
    return document


@pytest.mark.parametrize("service", TABLES)
def test_every_admin_endpoint_has_one_row(service: Service) -> None:
    document = document_of(service)
    rows = [_row(each) for module in TABLES[service] for each in vars(module).values() if isinstance(each, Endpoint)]
    rows.append(_row(READ_CHECKS[service]))
    assert sorted(rows, key=str) == sorted(_documented(document["paths"]), key=str)


@pytest.mark.parametrize("service", TABLES)
def test_every_write_takes_a_reason_for_the_audit_log(service: Service) -> None:
    document = document_of(service)
    without = []
    for path, item in document["paths"].items():
        for method, operation in item.items() if path.startswith("/admin/") else ():
            queries = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
            schemas = _schemas([operation.get("requestBody", {}).get("content", {})])
            fields = {name for each in schemas for name in document["components"]["schemas"][each]["properties"]}
            if method != "get" and "reason" not in queries | fields:
                without.append((method.upper(), path))
    assert without == [(one.method, one.path) for one in CHANGES_NOTHING if service == "queue"]


def _row(endpoint: Endpoint[Any]) -> Row:
    answers = {each.__name__ for each in get_args(endpoint.answer) or (endpoint.answer,)} - {"NoneType"}
    body = frozenset({endpoint.body.__name__} if endpoint.body else ())
    return endpoint.method, endpoint.path, frozenset(answers), body, endpoint.needs_key


def _documented(paths: dict[str, Any]) -> Iterator[Row]:
    """Endpoints that answer JSON or nothing: method, path, answer, body, and whether an idempotency key is needed."""
    for path, item in paths.items():
        for method, operation in item.items() if path.startswith("/admin/") else ():
            contents = [each.get("content", {}) for code, each in operation["responses"].items() if code[0] == "2"]
            if any(content and JSON not in content for content in contents):
                continue
            keyed = any(each["name"] == "Idempotency-Key" for each in operation.get("parameters", ()))
            body = _schemas([operation.get("requestBody", {}).get("content", {})])
            yield method.upper(), path, _schemas(contents), body, keyed


def _schemas(contents: list[dict[str, Any]]) -> frozenset[str]:
    schemas = [content[JSON]["schema"] for content in contents if JSON in content]
    return frozenset(one["$ref"].rpartition("/")[2] for schema in schemas for one in schema.get("anyOf", [schema]))
