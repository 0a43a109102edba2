"""The fixtures of inventory, whose allotments open as soon as they are due."""

import pytest

from features.stock import inventory as part
from services.inventory.settings import Settings
from tests.inventory.conftest import inventory, loops, settings_of  # noqa: F401


@pytest.fixture
def switched_off() -> None:
    """The inventory of a test that asks for this does without the feature."""


@pytest.fixture
def settings(
    redis_url: str, postgres_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(part, "OPENINGS_S", 0.05)
    off = frozenset({"stock"} if "switched_off" in request.fixturenames else ())
    return settings_of(redis_url, postgres_url).model_copy(update={"features_off": off})
