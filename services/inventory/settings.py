"""Inventory's settings; sales rules are in the event file."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import PublicSettings
from shared.security.tokens import Keys, development_keys


class Settings(PublicSettings):
    """Read from `INVENTORY_…`, failing that from `ONSALE_…`."""

    model_config = SettingsConfigDict(
        env_prefix="INVENTORY_", frozen=True, arbitrary_types_allowed=True, extra="ignore"
    )

    pass_public_keys: Keys = Field(
        default_factory=lambda: development_keys("pass").public(), description="Verify passes."
    )
    queue_token_keys: Keys = Field(
        default_factory=lambda: development_keys("queue-token"), description="Verify queue tokens."
    )
    claims_waiting_max: int = Field(
        4096, ge=1, le=100_000, description="Fans per event who may wait for their pass at one process."
    )
    body_max_bytes: int = Field(256 * 1024, ge=1024, description="Largest request body, which is an event file.")
    hold_batch_max: int = Field(256, ge=1, le=1024, description="Most reservations per transaction.")
    hold_batch_max_contended: int = Field(
        24,
        ge=1,
        le=1024,
        description="Most reservations per transaction while several events sell, so that none waits long.",
    )
    hold_waiting_max: int = Field(4096, ge=1, le=100_000, description="Reservations that may wait per event.")
    address_holds_max: int = Field(
        200, ge=0, le=1_000_000, description="Most live holds of one client address at one process; 0 is unlimited."
    )
    given_back_at_once: int = Field(3, ge=1, le=1000, description="Holds that one fan may give back in a row.")
    given_back_pause_s: float = Field(
        5.0,
        gt=0,
        le=3600,
        description="After that, the pause before the fan may reserve again; each pause allows one more.",
    )
    redis_check_interval_ms: int = Field(200, ge=20, le=5000, description="How often the stock in Redis is checked.")
    expiry_interval_ms: int = Field(
        250, ge=20, le=5000, description="How often due holds are expired by their deadlines in Redis."
    )
    expiry_scan_interval_ms: int = Field(
        2000, ge=100, le=60_000, description="How often the database is scanned for due holds."
    )
    publish_interval_ms: int = Field(
        250, ge=50, le=5000, description="Shortest time between two stock frames of an event."
    )
    allotment_interval_ms: int = Field(
        1000, ge=50, le=60_000, description="How often allotments that are due are opened."
    )
    reconcile_interval_s: float = Field(60, ge=1, le=3600, description="How often Redis and the database are compared.")
    load_interval_ms: int = Field(1000, ge=50, le=10_000, description="How often this process publishes its load.")
