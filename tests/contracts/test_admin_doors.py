"""Every route of every admin API: wrong keys are limited by address, and the right one is never refused; each
operation has a name of its own, every write takes a reason, and every pattern of the documents has words for who typed
another value.
"""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shared.contracts.fields import WANTED
from shared.features import package_of, services
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES, Service
from shared.security.auth import AdminKeys
from shared.web.api_document import operations
from shared.web.app import public
from tests.support.running.suite import problem

KEY = "the-only-key-that-is-right"
OFFICE, HOME = {"x-forwarded-for": "203.0.113.7"}, {"x-forwarded-for": "198.51.100.1"}
SIGN_IN = "/admin/console/session"


@cache
def app_of(name: str) -> FastAPI:
    """The service, connected to nothing: who calls is found out before anything is asked."""
    settings: type[ServiceSettings] = importlib.import_module(f"{package_of(name)}.settings").Settings
    app: FastAPI = importlib.import_module(f"{package_of(name)}.app").create_app(
        settings(admin_keys=AdminKeys(f"office:admin:{KEY}"))
    )
    app.state.deps = None
    return app


def address_of(path: str) -> str:
    return re.sub(r"\{\w+\}", "a1", path.replace("{action}", "open"))


@pytest.mark.parametrize("name", SERVICES)
async def test_wrong_keys_are_limited_at_every_admin_route_and_the_right_one_is_never_refused(name: str) -> None:
    app = app_of(name)
    transport, documented = httpx.ASGITransport(public(app), raise_app_exceptions=False), app.openapi()["paths"].items()
    of_operators = [(path, methods) for path, methods in documented if path.startswith("/admin/") and path != SIGN_IN]
    routes = [(method, path) for path, methods in of_operators for method in methods]
    assert routes
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

        async def call(method: str, path: str, key: str, address: dict[str, str]) -> httpx.Response:
            headers = {"authorization": f"Bearer {key}", **address}
            return await client.request(method, address_of(path), headers=headers, json={})

        first = routes[0]
        for _ in range(5):
            assert problem(await call(*first, "wrong" * 5, OFFICE)) == (401, "bad-credential")
        for method, path in routes:
            for wrong in ("another" * 5, "operator.k.claims.mac"):
                limited = await call(method, path, wrong, OFFICE)
                assert problem(limited) == (429, "too-many-wrong-codes"), path
                assert 1 <= int(limited.headers["retry-after"]) <= 12
            assert (await call(method, path, KEY, OFFICE)).status_code not in (401, 403, 429), path
        assert problem(await call(*first, "wrong" * 5, HOME)) == (401, "bad-credential")


@pytest.mark.parametrize("name", SERVICES)
async def test_every_admin_route_needs_a_key_and_every_change_more_than_a_viewers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(name)
    monkeypatch.setitem(app.state._state, "admin_keys", AdminKeys(f"watcher:viewer:{KEY}"))
    transport, read_only = httpx.ASGITransport(public(app), raise_app_exceptions=False), {"capacity-plan", "quote"}
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for path, methods in app.openapi()["paths"].items():
            for method in methods if path.startswith("/admin/") and path != SIGN_IN else ():
                address = address_of(path)
                assert problem(await client.request(method, address, json={})) == (401, "no-credential"), path
                if method != "get" and path.rpartition("/")[2] not in read_only:
                    watching = {"authorization": f"Bearer {KEY}"}
                    assert problem(await client.request(method, address, json={}, headers=watching))[0] == 403, path


@pytest.mark.parametrize("name", SERVICES)
async def test_no_service_serves_a_page_that_loads_scripts_of_another_host(name: str) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app_of(name))), base_url="http://x") as client:
        for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
            assert (await client.get(path)).status_code == 404


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


def patterns(node: Any) -> Iterator[str]:
    """All patterns of fields and parameters below this part of an OpenAPI document."""
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from patterns(each)


@pytest.mark.parametrize("service", SERVICES)
def test_every_documented_pattern_has_words(service: str) -> None:
    """A new pattern needs words in `WANTED`."""
    documents = importlib.import_module(f"{package_of(service)}.app").create_app().openapi()
    assert set(patterns(documents)) <= WANTED.keys()
