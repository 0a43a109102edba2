"""Every operation of the admin APIs has a name of its own, and every write takes a reason."""

import importlib
import re
from functools import cache
from typing import Any

import pytest

from shared.features import package_of, services
from shared.routes import Service
from shared.web.api_document import operations

JSON = "application/json"
CHANGES_NOTHING = {"queue": ["plan_capacity"]}


@cache
def document_of(service: Service) -> dict[str, Any]:
    document: dict[str, Any] = importlib.import_module(f"{package_of(service)}.app").create_app().openapi()
    return document


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"]
        for service in services()
        for path, _, operation in operations(document_of(service))
        if path.startswith(("/admin/", "/console/"))
    ]
    assert len(names) == len(set(names))
    assert not [name for name in names if not re.fullmatch("[a-z]+(_[a-z]+)*", name) or "admin" in name]


@pytest.mark.parametrize("service", ["queue", "inventory", "orders"])
def test_every_write_takes_a_reason_for_the_audit_log(service: Service) -> None:
    document = document_of(service)
    without = []
    for path, method, operation in operations(document):
        if method == "get" or not path.startswith("/admin/"):
            continue
        queries = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        schemas = _schemas(operation.get("requestBody", {}).get("content", {}))
        fields = {name for each in schemas for name in document["components"]["schemas"][each]["properties"]}
        if "reason" not in queries | fields:
            without.append(operation["operationId"])
    assert without == CHANGES_NOTHING.get(service, [])


def _schemas(content: dict[str, Any]) -> set[str]:
    schema = content.get(JSON, {}).get("schema", {})
    return {one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema] if schema else [])}
