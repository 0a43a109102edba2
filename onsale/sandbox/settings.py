"""Settings of the sandbox: where it is, and how slow it is. Its own waits and limits are no settings."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The times and sizes that nobody who rehearses needs to turn, and that tests shorten."""

    reorder_gap_s: float = 0.5  # between two events sent in the wrong order
    webhook_retry_delays_s: tuple[float, ...] = (0.2, 1.0, 3.0, 9.0, 27.0, 60.0, 60.0)  # between tries of one webhook
    webhook_timeout_s: float = 10.0  # for one try
    webhook_senders: int = 16  # webhooks on their way at once
    webhooks_waiting_max: int = 100_000  # more are lost, and counted
    charges_max: int = 1_000_000  # charges that can be stored


DEFAULTS = Tuning()
