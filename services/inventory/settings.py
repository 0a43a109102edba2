"""What an operator may set about inventory; sales rules belong to the event file."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime.settings import Keys, PublicSettings, development_keys
from shared.security.auth import AdminKeys, AdminKeysSetting
from shared.security.tokens import Keyring


def _development_pass_keys() -> Keyring:
    return development_keys("pass").public()


class Settings(PublicSettings):
    """Read from `INVENTORY_…`, failing that from `ONSALE_…`."""

    model_config = SettingsConfigDict(
        env_prefix="INVENTORY_", frozen=True, arbitrary_types_allowed=True, extra="ignore"
    )

    pass_public_keys: Keys = Field(default_factory=_development_pass_keys, description="Verify passes.")
    queue_token_keys: Keys = Field(
        default_factory=lambda: development_keys("queue-token"), description="Verify queue tokens."
    )
    claims_waiting_max: int = Field(4096, ge=1, le=100_000, description="Fans per event who may wait for their pass.")
    cache_entries_max: int = Field(65_536, ge=1, description="Places whose turn one process remembers for a moment.")
    admin_keys: AdminKeysSetting = Field(default_factory=AdminKeys, description="Operators' API keys.")
    body_max_bytes: int = Field(256 * 1024, ge=1024, description="Largest request body; an event file is the largest.")
    hold_batch_max: int = Field(256, ge=1, le=1024, description="Reservations written in one transaction at most.")
    hold_batch_max_contended: int = Field(
        24, ge=1, le=1024, description="The same while other events sell, too: so that they do not wait for long."
    )
    hold_waiting_max: int = Field(4096, ge=1, le=100_000, description="Reservations that may wait per event.")
    address_holds_max: int = Field(
        200, ge=0, le=1_000_000, description="Live holds of one client address at one process; 0: as many as they like."
    )
    given_back_at_once: int = Field(3, ge=1, le=1000, description="Holds one fan may give back in a row.")
    given_back_pause_s: float = Field(
        5.0, gt=0, le=3600, description="After more of them, so long until the fan may hold again; each frees one."
    )
    redis_check_interval_ms: int = Field(200, ge=20, le=5000, description="How often the gate's engine is looked at.")
    expiry_interval_ms: int = Field(250, ge=20, le=5000, description="How often due holds are looked for.")
    expiry_scan_interval_ms: int = Field(
        2000, ge=100, le=60_000, description="How often the ledger is scanned for due holds."
    )
    publish_interval_ms: int = Field(250, ge=50, le=5000, description="At most one stock frame per event in this time.")
    allotment_interval_ms: int = Field(
        1000, ge=50, le=60_000, description="How often allotments are looked at for opening."
    )
    reconcile_interval_s: float = Field(60, ge=1, le=3600, description="How often gate and ledger are compared.")
    load_interval_ms: int = Field(1000, ge=50, le=10_000, description="How often the gatekeeper is shown our load.")
