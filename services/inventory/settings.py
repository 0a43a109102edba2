"""Inventory's settings; sales rules are in the event file."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import PassKeys, PublicSettings, QueueTokenKeys


class Settings(QueueTokenKeys, PassKeys, PublicSettings):
    """Read from `INVENTORY_…`, failing that from `ONSALE_…`."""

    model_config = SettingsConfigDict(
        env_prefix="INVENTORY_", frozen=True, arbitrary_types_allowed=True, extra="ignore"
    )

    address_holds_max: int = Field(
        200, ge=0, le=1_000_000, description="Most live holds of one client address; 0 is unlimited."
    )
