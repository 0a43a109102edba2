"""The example of the guide to payment providers works, and is one file."""

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from services.orders.providers import open_providers
from services.orders.providers.provider import ChargeRequest, Provider, ProviderRejected, Unreachable
from services.orders.settings import Settings
from shared.http.outgoing import ExternalResponse, NotReached

GUIDE = Path(__file__).parents[3] / "docs" / "use" / "payment-providers.md"
NAME = "services.orders.providers.acme"


class NoServer:
    """A client that reaches no server."""

    async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
        raise NotReached(url)


@pytest.fixture
def acme(monkeypatch):
    [code] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    module = ModuleType(NAME)
    module.__spec__ = sys.modules["services.orders.providers.provider"].__spec__
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, NAME, module)
    monkeypatch.setenv("ORDERS_ACME_SECRET_KEY", "sk")
    monkeypatch.setenv("ORDERS_ACME_WEBHOOK_SECRET", "wh")
    return module


def test_the_guides_provider_has_every_call_of_the_protocol(acme):
    provider = open_providers(NoServer(), Settings(payment_providers=("acme",)))["acme"]
    calls = {name: call for name, call in vars(Provider).items() if inspect.isfunction(call) and name[0] != "_"}
    assert "capture" in calls
    for name, call in calls.items():
        implemented = getattr(type(provider), name)
        assert [*inspect.signature(implemented).parameters] == [*inspect.signature(call).parameters], name


async def test_the_guides_provider_charges_and_raises_the_errors_of_the_protocol(acme):
    class Acme(NoServer):
        async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
            if url.endswith("/void"):
                return ExternalResponse(409, {}, b'{"code": "no"}')
            charge = {"id": "p1", "order": "R", "key": "R:1", "currency": "EUR", "status": "failed", "amount": 1}
            return ExternalResponse(200, {}, orjson.dumps(charge | {"at_ms": 2, "reason": "declined"}))

    provider = open_providers(Acme(), Settings(payment_providers=("acme",)))["acme"]
    request = ChargeRequest(reference="R", key="R:1", amount_minor=1, currency="EUR", method="card")
    charge = await provider.create(request)
    assert (charge.status, charge.reason, charge.occurred_at_ms) == ("failed", "declined", 2)
    assert (await provider.cancel("p1")).status == "failed"
    with pytest.raises(ProviderRejected):
        await provider._call("POST", "/payments/p1/void")  # type: ignore[attr-defined]
    unreachable = open_providers(NoServer(), Settings(payment_providers=("acme",)))["acme"]
    with pytest.raises(Unreachable):
        await unreachable.create(request)


def test_an_unknown_provider_or_missing_secrets_are_refused_at_start(monkeypatch):
    with pytest.raises(ValueError, match="there is no provider named nobody"):
        open_providers(NoServer(), Settings(payment_providers=("nobody",)))
    with pytest.raises(ValueError, match="there is no provider named signature"):
        open_providers(NoServer(), Settings(payment_providers=("signature",)))
    monkeypatch.setenv("ORDERS_PAYMENT_PROVIDERS", "sandbox, stripe")
    with pytest.raises(ValueError, match="stripe_secret_key and stripe_webhook_secrets"):
        Settings()
    monkeypatch.setenv("ORDERS_STRIPE_SECRET_KEY", "sk_test")
    monkeypatch.setenv("ORDERS_STRIPE_WEBHOOK_SECRETS", "whsec_1,whsec_2")
    settings = Settings()
    assert [*open_providers(NoServer(), settings)] == ["sandbox", "stripe"]
    assert "sk_test" not in repr(settings)
