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
from tests.orders.conftest import OrdersProcesses
from tests.orders.processing.test_states import ORDER
from tests.orders.shop import pass_header, pass_of

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


async def test_a_cookie_beside_the_credential_escapes_no_limit(processes: OrdersProcesses) -> None:
    shop = await processes.open(fan_calls_per_s=0.4)
    made = await shop.post(shop.body(await shop.inventory.hold()))
    path = f"/orders/{made.json()['reference']}"
    for name, token in (("pass_show", pass_of("fan")), ("order_" + path[8:], made.json()["order_token"])):
        statuses = list[int]()
        for n in range(12):
            pair = [f"onsale_{name}=a.b.decoy-{n}", f"onsale_{name}={token}"]
            cookies = "; ".join(pair if n % 2 else pair[::-1])
            statuses.append((await shop.http.get(path, headers={"cookie": cookies})).status_code)
        assert set(statuses[5:]) == {429}, name
        assert 3 <= statuses.count(200) <= 4, name
    assert (
        await shop.http.get(path, headers={"authorization": f"Bearer {made.json()['order_token']}"})
    ).status_code == 429
    assert (await shop.http.get(path, headers=pass_header("other"))).status_code == 404
