"""Settings of the sandbox; every delay is one, so that tests can make them short."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.security.user_settings import listed


class SandboxSettings(BaseSettings):
    """Defaults are those of a slow provider; the environment overrides them with `ONSALE_SANDBOX_…`."""

    model_config = SettingsConfigDict(env_prefix="ONSALE_SANDBOX_", frozen=True, extra="forbid")

    webhook_url: str | None = Field(None, pattern=r"^https?://", description="where events go; nowhere when unset")
    webhook_secret: str = Field("sandbox-secret", min_length=1, max_length=256, description="signs webhooks")
    books_path: Path | None = Field(None, description="JSON lines of every charge and refund; memory only when unset")
    public_url: str | None = Field(
        None, pattern=r"^https?://", description="where browsers find the hosted page; the caller's address when unset"
    )

    latency_s: float = Field(0.0, ge=0, le=60, description="before every answer to a charge")
    slow_s: float = Field(2.0, ge=0, le=60, description="before the answer of method slow")
    hang_s: float = Field(60.0, ge=0, le=600, description="before the answer of method timeout_after_success")
    late_after_s: float = Field(
        3.0, ge=0, le=3600, description="until a late success, unless the charge says so itself"
    )
    reorder_gap_s: float = Field(0.5, ge=0, le=60, description="between two events sent in the wrong order")

    webhook_retry_delays_s: Annotated[tuple[PositiveFloat, ...], NoDecode, BeforeValidator(listed)] = Field(
        (0.2, 1.0, 3.0, 9.0, 27.0, 60.0, 60.0), max_length=20, description="waits between the tries of one webhook"
    )
    webhook_timeout_s: float = Field(10.0, gt=0, le=60, description="for one try")
    webhook_senders: PositiveInt = Field(16, le=256, description="webhooks on their way at once")
    webhooks_waiting_max: PositiveInt = Field(100_000, le=1_000_000, description="more are lost, and counted")
    charges_max: PositiveInt = Field(1_000_000, le=1_000_000, description="charges that can be stored")
