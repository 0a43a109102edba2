"""The providers of a process: the sandbox and those of features, by name, and none that is unknown or incomplete. With
whatever the sandbox does an order ends confirmed and paid once, or unconfirmed and unpaid. Banks print the words of a
charge, and the fan knows what it was.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orders.providers import METHODS, open_providers
from services.orders.settings import Settings
from services.orders.steps.purchase import DESCRIPTION_MAX_CHARS, description, statement
from services.orders.tickets.show import ShowInfo
from shared import features
from shared.features import BadFeature, Feature, PaymentProvider
from shared.payment_provider import ChargeLimits
from tests.properties.examples import bounded
from tests.support.wait import wait_until

STUCK_ATTEMPTS = {"decline": "failed", "success_after_cancel": "processing", "redirect": "requires_action"}


@pytest.mark.usefixtures("early_comparison")
@pytest.mark.parametrize("webhooks", [True, pytest.param(False, marks=pytest.mark.proof)])
async def test_every_sandbox_method_ends_in_a_paid_sale_or_without_money(processes, webhooks):
    shop = await processes.open(webhooks=webhooks, provider_timeout_s=0.5)
    methods = sorted(METHODS)
    orders = (_order(shop, method) for method in methods)
    references = dict(zip(methods, await asyncio.gather(*orders), strict=True))
    for method, status in STUCK_ATTEMPTS.items():
        await wait_until(partial(shop.attempt_is, references[method], status))
        await shop.expire(references[method])
    ended = {
        method: await shop.wait_until_settled(reference, "confirmed", "expired", "cancelled", "refunded")
        for method, reference in references.items()
        if method not in STUCK_ATTEMPTS
    }
    assert set(ended.values()) == {"confirmed"}
    assert await shop.wait_until_settled(references["decline"], "expired") == "expired"
    assert await shop.wait_until_settled(references["redirect"], "expired") == "expired"
    await wait_until(lambda: _is_paid(shop, references["success_after_cancel"]))
    await shop.wait_until_settled(references["success_after_cancel"], "confirmed", "refunded")
    if webhooks:
        await wait_until(lambda: _no_webhooks_waiting(shop))
    assert await shop.violated_invariants() == {}
    assert await shop.money_entries() == await shop.provider_entries()


async def _order(shop, method):
    payment = {"return_url": "http://shop/o/back"} if method == "redirect" else {}
    return await shop.order(method=method, **payment)


async def _is_paid(shop, reference):
    return any(charge["status"] == "succeeded" for charge in await shop.charges(reference))


async def _no_webhooks_waiting(shop):
    return (await shop.sandbox.get("/healthz")).json()["webhooks_waiting"] == 0


def test_production_refuses_the_sandbox(monkeypatch):
    for name in ("CUSTOMER", "HOLDER", "ORDER_TOKEN", "PASS_PUBLIC", "SANDBOX_WEBHOOK", "SERVICE", "TICKET"):
        monkeypatch.setenv(f"ONSALE_{name}_KEYS", "k1:" + "A" * 43)
    with pytest.raises(ValueError, match="set ORDERS_PAYMENT_PROVIDERS, or to rehearse ONSALE_ENVIRONMENT=rehearsal"):
        Settings(environment="production", secure_cookies=True)
    assert Settings(environment="rehearsal").payment_providers == ("sandbox",)


class Paying:
    """A provider of a feature."""

    def __init__(self, client: Any, settings: Settings, timeout_s: float) -> None:
        self.opened_with = client, settings, timeout_s

    def limits(self, currency: str) -> ChargeLimits:
        return limits_of(currency)


def limits_of(currency: str) -> ChargeLimits:
    return ChargeLimits(least_minor=70)


def without_limits(client: Any, settings: Settings, timeout_s: float) -> object:
    return object()


HERE = __name__
FEATURE = Feature(name="paying", what="Pays.", providers=[
    PaymentProvider("paying", f"{HERE}:Paying", limits=f"{HERE}:limits_of"),
    PaymentProvider("endless", f"{HERE}:without_limits"), PaymentProvider("gone", f"{HERE}:gone"),
])  # fmt: skip
CLIENT: Any = object()


@pytest.fixture
def one_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "installed", lambda: (FEATURE,))


@pytest.mark.usefixtures("one_feature")
def test_a_provider_of_a_feature_gets_the_client_the_settings_and_its_time() -> None:
    settings = Settings(payment_providers=("sandbox", "paying"), provider_timeout_s=7)
    found: Any = open_providers(CLIENT, settings)
    assert [*found] == ["sandbox", "paying"]
    assert found["paying"].opened_with == (CLIENT, settings, 7)


@pytest.mark.usefixtures("one_feature")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"payment_providers": ("nobody",)}, "no provider named nobody; there are sandbox, paying, endless, gone"),
        ({"payment_providers": ("paying",), "features_off": {"paying"}}, "no provider named paying; there are sandbox"),
        ({"payment_providers": ("endless",)}, "endless does not say what it takes in one charge"),
        ({"payment_providers": ("gone",)}, f"cannot load the feature at {HERE}:gone"),
        ({"sandbox_limits": "nobody"}, "no provider named nobody says beforehand what it takes"),
        ({"sandbox_limits": "endless"}, "no provider named endless says beforehand what it takes"),
    ],
)
def test_one_that_is_unknown_or_incomplete_stops_the_start(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadFeature, match=words):
        open_providers(CLIENT, Settings(**fields))


@pytest.mark.usefixtures("one_feature")
def test_the_sandbox_takes_anything_or_what_a_provider_does() -> None:
    for rehearsed, least_minor in (("none", 1), ("paying", 70)):
        sandbox = open_providers(CLIENT, Settings(sandbox_limits=rehearsed))["sandbox"]
        assert sandbox.limits("EUR").least_minor == least_minor


STATEMENT_MAX_CHARS = 22
AT = datetime(2027, 8, 31, 20, tzinfo=UTC)


@bounded(examples=30, steps=1)
@given(
    name=st.text(min_size=1, max_size=300),
    event_id=st.from_regex(r"[a-z0-9-]{1,60}", fullmatch=True),
    dated=st.booleans(),
)
def test_banks_print_the_words_of_every_event(name: str, event_id: str, dated: bool) -> None:
    show = ShowInfo(event_id, name, starts_at=AT if dated else None)
    suffix, text = statement(show, "7Q2M4XK9TB1C"), description(show, "7Q2M4XK9TB1C")
    assert len(suffix) <= STATEMENT_MAX_CHARS
    assert any(map(str.isalpha, suffix))
    assert not set(suffix) & set("<>\\'\"*")
    assert all(" " <= sign < "\u0250" and sign != "\x7f" for sign in suffix)
    assert "7Q2M4XK9TB1C" in text
    assert 0 < len(text) <= DESCRIPTION_MAX_CHARS
    assert suffix == suffix.strip()
    assert suffix.endswith("31 Aug") or not dated


@pytest.mark.parametrize(("name", "event_id", "said"), [
    ("Ænima", "tour-1", "AEnima"), ("A 演唱会", "tour-1", "tour-1"), ("2027", "2027", "Order 7Q2M4XK9TB1C"),
    ("The longest name of all the nights", "x", "The longest name of al"),
])  # fmt: skip
def test_a_statement_falls_back_to_the_event_id_and_the_reference(name: str, event_id: str, said: str) -> None:
    assert statement(ShowInfo(event_id, name), "7Q2M4XK9TB1C") == said
