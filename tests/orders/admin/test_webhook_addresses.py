"""The address guard: webhooks go to public addresses only, in any notation and after any resolution of a name."""

import pytest

from services.orders.webhooks.address_guard import AddressRefused, is_allowed, resolve_allowed
from services.orders.webhooks.sender import Delivery, Sender
from shared.rpc.outgoing import NoDnsResolver, external_http_client
from tests.orders.shop import OPERATOR, ROOT
from tests.support.providers.receiver import webhook_receiver
from tests.support.running.suite import problem

WEBHOOKS = "/admin/orders/webhooks"


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
    assert is_allowed("127.0.0.1", loopback=True)
    assert is_allowed("::1", loopback=True)
    assert not is_allowed("10.0.0.1", loopback=True)
    assert not is_allowed("0.0.0.0", loopback=True)


async def test_a_name_resolves_to_its_public_addresses_only():
    async def mixed(host, port):
        return ["10.0.0.1", "8.8.8.8", "8.8.8.8", "::1", "1.1.1.1", "9.9.9.9", "4.4.4.4"]

    assert await resolve_allowed("shop.example", 443, loopback=False, resolve=mixed) == [
        "8.8.8.8",
        "1.1.1.1",
        "9.9.9.9",
    ]

    async def private(host, port):
        return ["10.0.0.1", "::1"]

    with pytest.raises(AddressRefused):
        await resolve_allowed("shop.example", 443, loopback=False, resolve=private)


async def test_the_connection_goes_to_the_address_that_was_checked():
    """A name is resolved once, so a resolution that changes afterwards has no effect."""
    resolved = []

    async def resolve(host, port):
        resolved.append(host)
        return ["127.0.0.1"]

    async with (
        webhook_receiver() as receiver,
        external_http_client(connections_max=2, keep_open=False, resolver=NoDnsResolver()) as client,
    ):
        port = receiver.url.rpartition(":")[2]
        sender = Sender(client, deadline_s=2, loopback=True, resolve=resolve)
        result = await sender.send(_delivery(f"http://shop.invalid:{port}/x"))
        assert (result.status, resolved) == (204, ["shop.invalid"])
        assert receiver.received[0].headers["host"] == f"shop.invalid:{port}"


async def test_a_name_that_resolves_to_a_private_address_later_receives_nothing():
    async def private(host, port):
        return ["127.0.0.1"]

    async with (
        webhook_receiver() as receiver,
        external_http_client(connections_max=2, keep_open=False, resolver=NoDnsResolver()) as client,
    ):
        port = receiver.url.rpartition(":")[2]
        sender = Sender(client, deadline_s=2, loopback=False, resolve=private)
        for url in (f"https://shop.invalid:{port}/x", f"http://shop.invalid:{port}/x"):
            assert not (await sender.send(_delivery(url))).delivered
        assert receiver.received == []
        assert (await sender.send(_delivery("http://shop.invalid/x"))).error == "Webhooks are sent by https only."


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x", "https://localhost/x", "https://2130706433/", "https://0x7f.1/", "https://[::1]/",
        "https://10.1.2.3:8443/", "https://169.254.169.254/latest", "http://example.org/", "ftp://example.org/",
        "https://user:secret@example.org/", "https://", "https://example.org:99999/", "https://example.org/#part",
    ],
)  # fmt: skip
async def test_an_endpoint_with_a_forbidden_url_cannot_be_added(shop, url):
    answer = await shop.http.post(WEBHOOKS, json={"url": url, "reason": "x"}, headers=ROOT)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await shop.http.get(WEBHOOKS, headers=ROOT)).json()["endpoints"] == []


async def test_only_admins_add_endpoints_and_only_with_valid_fields(shop):
    body = {"url": "https://127.0.0.1/", "reason": "x"}
    assert (await shop.http.post(WEBHOOKS, json=body, headers=OPERATOR)).status_code == 403
    for field, value in (("kinds", ["order.paid"]), ("kinds", []), ("reason", ""), ("more", 1), ("event_id", "a b")):
        answer = await shop.http.post(WEBHOOKS, json={**body, field: value}, headers=ROOT)
        assert problem(answer) == (422, "invalid-request")


def _delivery(url):
    return Delivery(
        id=1, endpoint_id="ep_1", lease="x", url=url, secret="whsec_c2VjcmV0", message_id="msg_1", body="{}", attempts=0
    )
