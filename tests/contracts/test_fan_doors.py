"""The places of the services where a fan's credential is read: each keeps what SECURITY.md says of all of them."""

import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from features.forward_auth.gateway.request import OriginalRequest
from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings as GatewaySettings
from services.inventory.auth import HolderAuthenticator
from services.notifier import api as notifier
from services.orders.auth import CustomerAuthenticator
from shared.errors.problems import BadCredential, NoCredential, Problem
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
from shared.web.request import Request

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
