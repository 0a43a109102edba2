"""What opens an order: its own token, in the bearer or its cookie, and nobody else's."""

from typing import Any

import pytest
from fastapi import FastAPI

from services.orders.auth import CustomerAuthenticator
from services.orders.problems import UnknownOrder
from shared.errors.problems import ForeignOrigin, Problem
from shared.security.limits import FanLimit
from shared.security.tokens import Keyring, order_cookie, sign_order_token
from shared.web.request import Request
from tests.orders.processing.test_states import ORDER

KEYS = Keyring({"k1": b"k" * 32})
OTHER = "S"


def authenticator() -> CustomerAuthenticator:
    others: dict[str, Any] = {"passes": None, "users": None}
    limit = FanLimit(per_s=100, burst=100, keys_max=10)
    return CustomerAuthenticator(**others, order_token_keys=KEYS, fan_limit=limit)


def request(token: str, *, method: str = "GET", origin: str = "", bearer: bool = False) -> Request:
    credential = ("authorization", f"Bearer {token}") if bearer else ("cookie", f"{order_cookie('R')}={token}")
    fields = [credential, ("host", "shop.example"), *([("origin", origin)] if origin else [])]
    headers = [(name.encode(), value.encode()) for name, value in fields]
    scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": headers}
    return Request(FastAPI(), scope, no_body, body_max_bytes=0)


async def no_body() -> Any:
    raise AssertionError


async def outcome(made: Request, monkeypatch: pytest.MonkeyPatch) -> str:
    async def nobody(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(CustomerAuthenticator, "customers", nobody)
    try:
        await authenticator().require_owner(made, ORDER)
    except Problem as problem:
        return type(problem).__name__
    return "opened"


@pytest.mark.parametrize("bearer", [True, False])
async def test_the_token_of_an_order_opens_no_other(bearer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await outcome(request(sign_order_token(KEYS, "R"), bearer=bearer), monkeypatch) == "opened"
    foreign = request(sign_order_token(KEYS, OTHER), bearer=bearer)
    assert await outcome(foreign, monkeypatch) == UnknownOrder.__name__


@pytest.mark.parametrize(
    ("method", "origin", "expected"),
    [
        ("POST", "https://shop.example", "opened"),
        ("POST", "https://evil.example", ForeignOrigin.__name__),
        ("POST", "", ForeignOrigin.__name__),
        ("GET", "https://evil.example", "opened"),
    ],
)
async def test_another_site_cannot_write_with_an_orders_cookie(
    method: str, origin: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = sign_order_token(KEYS, "R")
    assert await outcome(request(token, method=method, origin=origin), monkeypatch) == expected
    assert await outcome(request(token, method=method, origin=origin, bearer=True), monkeypatch) == "opened"
