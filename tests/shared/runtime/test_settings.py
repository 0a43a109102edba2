"""Settings: read once, frozen, and refused in production with development secrets."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from shared.process.secrets_dir import BadSecrets, postgres_urls
from shared.process.settings import Keys, PublicSettings, ServiceSettings
from shared.security.tokens import development_keys


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="QUEUE_", frozen=True)
    queue_token_keys: Keys = development_keys("queue-token")


def test_a_services_own_variable_overrides_the_suites(monkeypatch) -> None:
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


def test_production_refuses_cookies_without_secure(monkeypatch) -> None:
    for name in ("HOLDER_KEYS", "SERVICE_KEYS"):
        monkeypatch.setenv(f"ONSALE_{name}", "k1:" + "A" * 43)
    with pytest.raises(ValidationError, match="set ONSALE_SECURE_COOKIES=true, or"):
        PublicSettings(environment="production")
    assert PublicSettings(environment="production", secure_cookies=True).secure_cookies
    assert not PublicSettings(environment="rehearsal").secure_cookies


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_a_secret_file_replaces_a_variable_that_is_not_set(monkeypatch, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "secrets", tmp_path / "url"
    (folder / "..data").mkdir(parents=True)
    elsewhere.write_text("postgresql+asyncpg://file")
    (folder / "queue_postgres_url").symlink_to(elsewhere)
    (folder / "ONSALE_REDIS_URL").write_text("redis://file\n")
    (folder / "onsale_queue_token_keys").write_text("k9:" + "A" * 43)
    (folder / "onsale_log_requests").write_text("false")
    monkeypatch.setenv("ONSALE_SECRETS_DIR", str(folder))
    monkeypatch.setenv("ONSALE_LOG_REQUESTS", "true")
    settings = Settings()
    assert (settings.redis_url, settings.postgres_url) == ("redis://file", "postgresql+asyncpg://file")
    assert (settings.queue_token_keys.kid, settings.log_requests) == ("k9", True)


def test_an_unreadable_secrets_directory_is_reported_in_one_line_without_secrets(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONSALE_SECRETS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(BadSecrets, match="No such file or directory"):
        Settings()
    (tmp_path / "onsale_service_keys").write_bytes(b"k1:\xff")
    monkeypatch.setenv("ONSALE_SECRETS_DIR", str(tmp_path))
    with pytest.raises(BadSecrets, match=r"^ONSALE_SECRETS_DIR=\S+: a file is not UTF-8 text\.$"):
        Settings()
    (tmp_path / "onsale_service_keys").write_bytes(b"k1:" + b"A" * 70_000)
    with pytest.raises(BadSecrets, match="larger than 64 KiB"):
        Settings()


def test_commands_find_the_databases_where_services_do(tmp_path: Path) -> None:
    (tmp_path / "orders_postgres_url").write_text("postgresql+asyncpg://orders")
    urls = postgres_urls({"ONSALE_SECRETS_DIR": str(tmp_path), "ONSALE_POSTGRES_URL": "postgresql+asyncpg://all"})
    others = dict.fromkeys(("queue", "inventory", "console"), "postgresql://all")
    assert urls == {**others, "orders": "postgresql://orders"}
    assert postgres_urls({}, "postgresql://one")["queue"] == "postgresql://one"
