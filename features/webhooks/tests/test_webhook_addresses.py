"""The address guard: webhooks go to public addresses only, in any notation and after any resolution of a name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import httpx
import pytest

from features.webhooks.orders import endpoints
from features.webhooks.orders.dispatcher import (
    Delivery,
    DeliveryResult,
    Sender,
    WebhookDispatcher,
    WebhookUrlRefused,
    is_allowed,
)
from shared.http.outgoing import NoDnsResolver, external_http_client
from tests.orders.conftest import OrdersProcesses
from tests.orders.shop import OPERATOR, ROOT, Shop
from tests.support.providers.receiver import Receiver, webhook_receiver
from tests.support.running.suite import problem

WEBHOOKS = "/admin/orders/webhooks"
FORBIDDEN_URLS = [
    "https://127.0.0.1/x", "https://localhost/x", "https://2130706433/", "https://0x7f.1/", "https://[::1]/",
    "https://10.1.2.3:8443/", "https://169.254.169.254/latest", "http://example.org/", "ftp://example.org/",
    "https://user:secret@example.org/", "https://", "https://example.org:99999/", "https://example.org/#part",
]  # fmt: skip


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.9.9", "192.168.1.1", "127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1",
        "fec0::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::",
        "::127.0.0.1", "2001:db8::1", "192.0.2.1", "198.18.0.1",
    ],
)  # fmt: skip
def test_webhooks_reach_no_private_address(address):
    assert not is_allowed(address, loopback=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_webhooks_reach_public_addresses(address):
    assert is_allowed(address, loopback=False)


def test_allow_loopback_allows_loopback_and_no_other_private_address():
    allowed = [is_allowed(address, loopback=True) for address in ("127.0.0.1", "::1", "10.0.0.1", "0.0.0.0")]
    assert allowed == [True, True, False, False]


class KnownAddresses(Sender):
    """A sender for whom every name has these addresses."""

    known: tuple[str, ...] = ("127.0.0.1",)

    async def lookup(self, host: str, port: int) -> tuple[str, ...]:
        self.asked = host
        return self.known


@asynccontextmanager
async def sending(*, loopback: bool) -> AsyncIterator[KnownAddresses]:
    async with external_http_client(connections_max=2, keep_open=False, resolver=NoDnsResolver()) as client:
        sender = KnownAddresses(client, threads_max=1, deadline_s=2, loopback=loopback)
        yield sender
        sender.close()


async def test_a_name_resolves_to_its_public_addresses_only():
    url = httpx.URL("https://shop.example/x")
    async with sending(loopback=False) as sender:
        sender.known = ("10.0.0.1", "8.8.8.8", "8.8.8.8", "::1", "1.1.1.1", "9.9.9.9", "4.4.4.4")
        assert await sender.addresses(url) == ["8.8.8.8", "1.1.1.1", "9.9.9.9"]
        sender.known = ("10.0.0.1", "::1")
        with pytest.raises(WebhookUrlRefused):
            await sender.addresses(url)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with webhook_receiver() as receiver:
        yield receiver


async def send(url: str, *, loopback: bool) -> tuple[DeliveryResult, str]:
    """The result of a delivery to this URL, whose name leads to this machine, and the name that was resolved."""
    delivery = Delivery(
        id=1, endpoint_id="ep_1", lease="x", url=url, secret="whsec_c2VjcmV0", message_id="msg_1", body="{}", attempts=0
    )
    async with sending(loopback=loopback) as sender:
        return await sender.send(delivery), getattr(sender, "asked", "")


async def test_the_connection_goes_to_the_address_that_was_checked(receiver: Receiver):
    """A name is resolved once, so a resolution that changes afterwards has no effect."""
    port = receiver.url.rpartition(":")[2]
    result, resolved = await send(f"http://shop.invalid:{port}/x", loopback=True)
    assert (result.status, resolved) == (204, "shop.invalid")
    assert receiver.received[0].headers["host"] == f"shop.invalid:{port}"


async def test_a_name_that_resolves_to_a_private_address_later_receives_nothing(receiver: Receiver):
    port = receiver.url.rpartition(":")[2]
    for scheme, error in (("https", "private"), ("http", "Webhooks are sent by https only.")):
        result, _ = await send(f"{scheme}://shop.invalid:{port}/x", loopback=False)
        assert (result.delivered, error in (result.error or "")) == (False, True)
    assert receiver.received == []


async def test_only_admins_add_endpoints_with_valid_fields_and_a_public_https_url(processes: OrdersProcesses):
    shop = await processes.open()
    shop.app.state.parts[WebhookDispatcher].sender.loopback = False
    body = {"url": "https://127.0.0.1/", "reason": "x"}
    assert (await shop.http.post(WEBHOOKS, json=body, headers=OPERATOR)).status_code == 403
    bad = [("kinds", ["order.paid"]), ("kinds", []), ("reason", ""), ("more", 1), ("event_id", "a b")]
    for field, value in bad + [("url", url) for url in FORBIDDEN_URLS]:
        answer = await shop.http.post(WEBHOOKS, json={**body, field: value}, headers=ROOT)
        assert problem(answer)[0] == 422, (field, value, answer.text)
    assert (await shop.http.get(WEBHOOKS, headers=ROOT)).json()["endpoints"] == []


async def test_there_are_a_hundred_webhook_endpoints_at_most(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    assert endpoints.ENDPOINTS_MAX == 100
    monkeypatch.setattr(endpoints, "ENDPOINTS_MAX", 2)
    body = {"url": "https://192.0.2.7/", "kinds": ["order.confirmed"], "reason": "x"}
    monkeypatch.setattr(Sender, "check", AsyncMock())
    statuses = [(await shop.http.post(WEBHOOKS, json=body, headers=ROOT)).status_code for _ in range(3)]
    assert statuses == [201, 201, 409]
