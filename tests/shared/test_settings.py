"""Settings: read once, frozen, and unfit for production with a laptop's secrets."""

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from shared.settings import Keys, ServiceSettings, development_keys


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="QUEUE_", frozen=True)
    queue_token_keys: Keys = development_keys("queue-token")


def test_a_services_own_variable_wins_over_the_suites(monkeypatch) -> None:
    monkeypatch.setenv("ONSALE_REDIS_URL", "redis://suite")
    monkeypatch.setenv("ONSALE_POSTGRES_URL", "postgresql+asyncpg://suite")
    monkeypatch.setenv("QUEUE_REDIS_URL", "redis://queue")
    settings = Settings()
    assert (settings.redis_url, settings.postgres_url) == ("redis://queue", "postgresql+asyncpg://suite")


def test_production_refuses_development_secrets_in_one_line(monkeypatch) -> None:
    with pytest.raises(ValidationError, match="holder_keys, queue_token_keys, service_keys"):
        Settings(environment="production")
    for name in ("HOLDER_KEYS", "QUEUE_TOKEN_KEYS", "SERVICE_KEYS"):
        monkeypatch.setenv(f"ONSALE_{name}", "k1:" + "A" * 43)
    assert Settings(environment="production").queue_token_keys.kid == "k1"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]
