"""The providers of a process: the sandbox and those of features, by name, and none that is unknown or incomplete."""

from typing import Any

import pytest

from services.orders.providers import open_providers
from services.orders.settings import Settings
from shared import features
from shared.features import BadFeature, Feature, PaymentProvider
from shared.payment_provider import ChargeLimits


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


@pytest.fixture(autouse=True)
def one_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "installed", lambda: (FEATURE,))


def test_a_provider_of_a_feature_gets_the_client_the_settings_and_its_time() -> None:
    settings = Settings(payment_providers=("sandbox", "paying"), provider_timeout_s=7)
    found: Any = open_providers(CLIENT, settings)
    assert [*found] == ["sandbox", "paying"]
    assert found["paying"].opened_with == (CLIENT, settings, 7)


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


def test_the_sandbox_takes_anything_or_what_a_provider_does() -> None:
    for rehearsed, least_minor in (("none", 1), ("paying", 70)):
        sandbox = open_providers(CLIENT, Settings(sandbox_limits=rehearsed))["sandbox"]
        assert sandbox.limits("EUR").least_minor == least_minor
