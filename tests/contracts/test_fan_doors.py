"""The places of the services where a fan's credential is read: each keeps what SECURITY.md says of all of them.

Every route of every admin API: wrong keys are limited by address, and the right one is never refused; each
operation has a name of its own, every write takes a reason, and every pattern of the documents has words for who typed
another value.
"""

import importlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from features.forward_auth.gateway.request import OriginalRequest
from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings as GatewaySettings
from services.inventory.auth import HolderAuthenticator
from services.notifier import api as notifier
from services.orders.auth import CustomerAuthenticator
from shared.contracts.fields import WANTED
from shared.errors.problems import BadCredential, NoCredential, Problem
from shared.features import package_of, services
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES, Service
from shared.security.auth import AdminKeys
from shared.security.limits import FanLimit
from shared.security.tokens import (
    Keyring,
    Pass,
    PassReader,
    QueueToken,
    QueueTokens,
    Users,
    cookies,
    development_keys,
    sign_order_token,
    sign_pass,
)
from shared.web.api_document import operations
from shared.web.app import public
from shared.web.request import Request
from tests.support.running.suite import problem

EVENT, HOST = "show", "tickets.example"
Door = Callable[[Request], Awaitable[Any]]


def passes(*, keys: Keyring | None = None, event_id: str = EVENT) -> str:
    at_s = int(time.time())
    return sign_pass(keys or development_keys("pass"), Pass(event_id, "fan", "1-0-1-1", 1, 0, 1, 6, at_s, at_s + 600))


def place(*, keys: Keyring | None = None, event_id: str = EVENT) -> str:
    return QueueTokens(keys or development_keys("queue-token")).sign(QueueToken(event_id, 1, 0, 1, "fan", 0))


def request(method: str = "GET", **fields: str) -> Request:
    raw = [(b"host", HOST.encode())] + [(name.encode(), value.encode()) for name, value in fields.items()]
    scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": raw}
    return Request(FastAPI(), scope, no_body, body_max_bytes=0)


async def no_body() -> Any:
    raise AssertionError


PASSES = PassReader(development_keys("pass").public())


async def _never(*_: object) -> bool:
    return False


def fan_limit() -> FanLimit:
    return FanLimit(per_s=100, burst=100, keys_max=10)


async def _gateway(asked: Request) -> Any:
    token = TokenReader(GatewaySettings(secure_cookies=True), Users()).queue_token(asked.scope, EVENT)
    if token is None:  # not ours: it is read as a user's JWT, and nobody can sign in here
        raise BadCredential
    return token


async def _inventory(asked: Request) -> Any:
    nobody: Any = None
    tokens = QueueTokens(development_keys("queue-token"))
    door = HolderAuthenticator(PASSES, tokens, Users(), nobody, fan_limit(), secure_cookies=True)
    return await door.holder_of(asked, EVENT)


def customers() -> CustomerAuthenticator:
    return CustomerAuthenticator(PASSES, development_keys("order-token"), Users(), fan_limit(), secure_cookies=True)


async def _orders(asked: Request) -> Any:
    return await customers().customers(asked)


async def _notifier(asked: Request, *, with_seats: bool = False) -> Any:
    state: Any = SimpleNamespace(
        settings=SimpleNamespace(secure_cookies=True, user_jwt_cookie=""), passes=PASSES, users=Users(),
        queue_tokens=QueueTokens(development_keys("queue-token")),
        pass_streams=SimpleNamespace(require_not_revoked=_never),
    )  # fmt: skip
    read = notifier._admitted if with_seats else notifier._authenticate
    return await read(asked, state, EVENT)


async def _seats(asked: Request) -> Any:
    return await _notifier(asked, with_seats=True)


async def _forward_auth(asked: Request) -> Any:
    original = OriginalRequest(
        EVENT, "GET", f"https://{HOST}", "/", Headers(scope=asked.scope), dict(cookies(asked.fields))
    )
    if not original.passes:
        raise NoCredential
    return [PASSES.read(text, now_s=time.time()) for text in original.passes]


DOORS: dict[str, tuple[Door, tuple[str, Callable[..., str]]]] = {
    "gateway": (_gateway, ("queue", place)),
    "inventory": (_inventory, ("pass", passes)),
    "inventory, by place": (_inventory, ("queue", place)),
    "orders": (_orders, ("pass", passes)),
    "notifier": (_notifier, ("queue", place)),
    "notifier, by pass": (_notifier, ("pass", passes)),
    "notifier, with seats": (_seats, ("pass", passes)),
    "forward-auth": (_forward_auth, ("pass", passes)),
}
EACH = pytest.mark.parametrize("name", DOORS)


async def refused(door: Door, asked: Request) -> bool:
    try:
        await door(asked)
    except Problem:
        return True
    return False


@EACH
async def test_no_other_host_of_the_domain_can_set_the_cookie_that_a_door_reads(name: str) -> None:
    door, (kind, make) = DOORS[name]
    assert not await refused(door, request(cookie=f"__Host-onsale_{kind}_{EVENT}={make()}"))
    assert await refused(door, request(cookie=f"onsale_{kind}_{EVENT}={make()}"))


@EACH
async def test_a_token_that_is_not_ours_or_for_another_event_opens_no_door(name: str) -> None:
    door, (_, make) = DOORS[name]
    assert not await refused(door, request(authorization=f"Bearer {make()}"))
    header, claims, signature = make().split(".")
    forged = [make(keys=development_keys("another")), f"{header}.{claims}.{signature[:-4]}AAAA", f"{header}.{claims}."]
    forged += [f"{header}.{claims[:-4]}AAAA.{signature}", f"eyJhbGciOiJub25lIn0.{claims}."]
    for text in forged:
        assert await refused(door, request(authorization=f"Bearer {text}")), text
    if name not in ("orders", "forward-auth"):  # these two compare the event with what is asked for
        assert await refused(door, request(authorization=f"Bearer {make(event_id='another')}"))


@pytest.mark.parametrize("name", [name for name in DOORS if not name.startswith(("notifier", "forward"))])
async def test_another_site_writes_at_no_door_with_a_fans_cookie(name: str) -> None:
    door, (kind, make) = DOORS[name]
    cookie = f"__Host-onsale_{kind}_{EVENT}={make()}"
    assert not await refused(door, request("POST", cookie=cookie, origin=f"https://{HOST}"))
    for origin in ({"origin": "https://evil.example"}, {"origin": "null"}, {"origin": f"http://{HOST}"}, {}):
        assert await refused(door, request("POST", cookie=cookie, **origin)), origin


async def test_an_order_cookie_opens_its_order_alone() -> None:
    token = sign_order_token(development_keys("order-token"), "ABC123DEF456")
    door = customers()
    for name, opened in (
        ("__Host-onsale_order_ABC123DEF456", ["ABC123DEF456"]),
        ("__Host-onsale_order_ZZZ123DEF456", []),
        ("onsale_order_ABC123DEF456", []),
    ):
        assert door.orders_in_cookies(request(cookie=f"{name}={token}")) == opened
    with pytest.raises(BadCredential):
        await door.customers(request(authorization=f"Bearer {token}"))


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
