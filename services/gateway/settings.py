"""Settings of the gateway."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime.settings import Keys, PublicSettings, development_keys


class Settings(PublicSettings):
    """The gateway keeps nothing durable; its limits bound what one process remembers and what may wait in it."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    queue_token_keys: Keys = Field(
        default_factory=lambda: development_keys("queue-token"), description="Sign queue tokens, newest first."
    )
    pass_public_keys: Keys = Field(
        default_factory=lambda: development_keys("pass").public(), description="Public keys of passes, newest first."
    )
    ticket_public_keys: Keys = Field(
        default_factory=lambda: development_keys("ticket").public(), description="Public keys of tickets, newest first."
    )
    queue_cookie_s: int = Field(
        7 * 86_400, ge=60, le=90 * 86_400, description="How long a browser keeps its place's token."
    )
    joins_waiting_max: int = Field(16_384, ge=1, description="Joins of one event that may wait for their batch.")
    pending_requests_max: int = Field(
        8_192, ge=1, description="Places of one event that may wait for an answer, per kind."
    )
    events_max: int = Field(10_000, ge=1, description="Events whose line one process keeps in memory.")
    cold_lookups_max: int = Field(64, ge=1, description="Questions about events never heard of, at the same time.")
    cache_entries_max: int = Field(
        65_536, ge=1, description="Verified tokens and statuses that one process remembers, each."
    )
    wrong_codes_per_s: float = Field(
        20, gt=0, le=10_000, description="Wrong codes one process lets be tried per event and second."
    )
    poll_min_ms: int = Field(2_000, ge=100, le=60_000, description="Shortest time between a fan's polls.")
    poll_max_ms: int = Field(10_000, ge=100, le=60_000, description="Longest time between a fan's polls.")
    address_joins_per_s: float = Field(
        50,
        gt=0,
        le=1e6,
        description="Joins and challenges of one client address, at one process; behind the balancer.",
    )
    address_joins_burst: int = Field(500, ge=1, le=1_000_000, description="As many of them may come at once.")
    identity_calls_per_s: float = Field(
        10, gt=0, le=1e6, description="Calls of one fan, all tabs together, at one process: status, join, pass, leave."
    )
    identity_calls_burst: int = Field(100, ge=1, le=1_000_000, description="As many of them may come at once.")
    rate_limit_keys_max: int = Field(
        65_536, ge=1, description="Fans and addresses whose calls one process counts, each."
    )
