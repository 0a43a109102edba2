"""The provider that the guide adds really is one file."""

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from services.orders.payments import open_providers
from services.orders.payments.provider import ChargeRequest, Provider, ProviderRejected, Unreachable
from services.orders.settings import Settings
from shared.rpc.outgoing import ExternalResponse, NotReached

GUIDE = Path(__file__).parents[3] / "docs" / "payment-providers.md"
NAME = "services.orders.payments.acme"


class Nobody:
    """No server."""

    async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
        raise NotReached(url)


@pytest.fixture
def acme(monkeypatch):
    [code] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    module = ModuleType(NAME)
    module.__spec__ = sys.modules["services.orders.payments.provider"].__spec__
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, NAME, module)
    monkeypatch.setenv("ORDERS_ACME_SECRET_KEY", "sk")
    monkeypatch.setenv("ORDERS_ACME_WEBHOOK_SECRET", "wh")
    return module


def test_a_third_provider_is_one_file_with_every_call_of_the_protocol(acme):
    provider = open_providers(Nobody(), Settings(payment_providers=("acme",)))["acme"]
    calls = {name: call for name, call in vars(Provider).items() if inspect.isfunction(call) and name[0] != "_"}
    assert "capture" in calls
    for name, call in calls.items():
        theirs = getattr(type(provider), name)
        assert [*inspect.signature(theirs).parameters] == [*inspect.signature(call).parameters], name


async def test_it_charges_and_is_refused_in_the_words_of_the_protocol(acme):
    class Acme(Nobody):
        async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
            if url.endswith("/void"):
                return ExternalResponse(409, {}, b'{"code": "no"}')
            names = {"id": "p1", "order": "R", "key": "R:1", "currency": "EUR"}
            told = names | {"status": "failed", "amount": 1, "at_ms": 2, "reason": "declined"}
            return ExternalResponse(200, {}, orjson.dumps(told))

    provider = open_providers(Acme(), Settings(payment_providers=("acme",)))["acme"]
    asked = ChargeRequest(reference="R", key="R:1", amount_minor=1, currency="EUR", method="card")
    made = await provider.create(asked)
    assert (made.status, made.reason, made.occurred_at_ms) == ("failed", "declined", 2)
    assert (await provider.cancel("p1")).status == "failed"
    with pytest.raises(ProviderRejected):
        await provider._call("POST", "/payments/p1/void")  # type: ignore[attr-defined]
    away = open_providers(Nobody(), Settings(payment_providers=("acme",)))["acme"]
    with pytest.raises(Unreachable):
        await away.create(asked)


def test_a_provider_without_a_file_or_without_its_secrets_stops_the_boot(monkeypatch):
    with pytest.raises(ValueError, match="there is no provider named nobody"):
        open_providers(Nobody(), Settings(payment_providers=("nobody",)))
    with pytest.raises(ValueError, match="there is no provider named signature"):
        open_providers(Nobody(), Settings(payment_providers=("signature",)))
    monkeypatch.setenv("ORDERS_PAYMENT_PROVIDERS", "sandbox, stripe")
    with pytest.raises(ValueError, match="stripe_secret_key and stripe_webhook_secrets"):
        Settings()
    monkeypatch.setenv("ORDERS_STRIPE_SECRET_KEY", "sk_test")
    monkeypatch.setenv("ORDERS_STRIPE_WEBHOOK_SECRETS", "whsec_1,whsec_2")
    settings = Settings()
    assert [*open_providers(Nobody(), settings)] == ["sandbox", "stripe"]
    assert "sk_test" not in repr(settings)
