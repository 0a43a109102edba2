"""Inventory's settings; sales rules are in the event file."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import PublicSettings
from shared.security.tokens import development_keys
from shared.security.user_settings import Keys


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
    body_max_bytes: int = Field(256 * 1024, ge=1024, description="Largest request body, which is an event file.")
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
    reconcile_interval_s: float = Field(60, ge=1, le=3600, description="How often Redis and the database are compared.")
