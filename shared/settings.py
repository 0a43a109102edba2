"""The settings every service has; each service adds its own fields in its `settings.py`.

Read once, when the service is built, from `<SERVICE>_<FIELD>` and, failing that, from `ONSALE_<FIELD>`; frozen after.
Defaults work on a laptop; in production a development secret stops the boot with one clear line.
"""

import hashlib
import time
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from shared.engine_url import EngineUrl
from shared.key_stages import RotatingKeys
from shared.key_watch import from_file, rings_of
from shared.tokens import Keyring
from shared.user_settings import UserSettings

DEVELOPMENT_KID = "dev"
PubSubMode = Literal["auto", "plain", "sharded"]


def development_keys(purpose: str) -> Keyring:
    """A well-known 32-byte key for laptops. Anyone can compute it: production refuses it."""
    return Keyring({DEVELOPMENT_KID: hashlib.sha256(f"onsale development {purpose}".encode()).digest()})


def _keyring(value: Any) -> Any:
    return Keyring.parse(value) if isinstance(value, str) else value


def _engine_url(value: str) -> str:
    EngineUrl.parse(value)
    return value


Keys = Annotated[Keyring, NoDecode, BeforeValidator(_keyring)]


class ServiceSettings(UserSettings):
    """Common to all five services."""

    model_config = SettingsConfigDict(
        frozen=True, arbitrary_types_allowed=True, extra="ignore", hide_input_in_errors=True
    )

    environment: Literal["development", "production"] = Field(
        "development", description="Production refuses laptop defaults."
    )
    host: str = Field("127.0.0.1", description="Address the public and internal listeners bind to.")
    port: int = Field(0, ge=0, le=65535, description="Public port; 0 takes a free one.")
    internal_port: int = Field(0, ge=0, le=65535, description="Port of the internal listener; 0 takes a free one.")
    share_port: bool = Field(False, description="Other processes may listen on the public port too (SO_REUSEPORT).")
    pubsub: PubSubMode = Field(
        "auto", description="How frames of events are shown: plain, or also sharded; auto: sharded on a cluster."
    )
    redis_url: Annotated[str, AfterValidator(_engine_url)] = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis 6.2 or newer, or Valkey: redis:// one engine, redis+sentinel:// the primary that sentinels "
        "name, redis+cluster:// a cluster; rediss with TLS.",
    )
    postgres_url: str = Field(
        "postgresql+asyncpg://postgres@127.0.0.1:5432/onsale", description="PostgreSQL 15 or newer, asyncpg driver."
    )
    postgres_pool_max: int = Field(10, ge=1, le=200, description="Connections to PostgreSQL at most.")
    queue_url: str = Field("http://127.0.0.1:8102", description="Internal listener of the queue.")
    inventory_url: str = Field("http://127.0.0.1:8103", description="Internal listener of inventory.")
    orders_url: str = Field("http://127.0.0.1:8104", description="Internal listener of orders.")
    service_keys: Keys = Field(default_factory=lambda: development_keys("service"), description="Sign internal calls.")
    holder_keys: Keys = Field(
        default_factory=lambda: development_keys("holder"),
        description="Name fans by their sign-in or Idempotency-Key. Never rotated: the same fan keeps the name.",
    )
    keys_file: Path | None = Field(
        None, description="Rotating keys, as `onsale keys` keeps them; watched. A keyring that is set wins over it."
    )
    body_max_bytes: int = Field(64 * 1024, ge=1024, description="Largest public request body.")
    internal_body_max_bytes: int = Field(4 * 1024 * 1024, ge=1024, description="Largest internal request body.")
    log_requests: bool = Field(True, description="One JSON line per request, hot paths excepted.")
    shutdown_grace_s: float = Field(5.0, ge=0, le=300, description="How long requests in flight may take to finish.")
    clock_offset_ms: int = Field(0, description="Moves the engines' clock as scripts see it; 0 outside tests.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, EnvSettingsSource(settings_cls, env_prefix="ONSALE_"), file_secret_settings

    @model_validator(mode="after")
    def _take_keys_of_the_file(self) -> Self:
        if self.keys_file is not None:
            try:
                keys = RotatingKeys.read(self.keys_file)
            except ValueError as broken:
                raise ValueError(f"the file of keys, {self.keys_file}: {broken}") from broken
            for name, ring in rings_of(keys, from_file(self), now_s=time.time()).items():
                object.__setattr__(self, name, ring)
        return self

    @model_validator(mode="after")
    def _refuse_laptop_secrets(self) -> Self:
        if self.environment == "production":
            weak = [
                n
                for n in type(self).model_fields
                if isinstance(k := getattr(self, n), Keyring) and DEVELOPMENT_KID in k.keys
            ]
            if weak:
                raise ValueError(f"in production these secrets must be set: {', '.join(sorted(weak))}")
        return self
