"""Settings of the gateway."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import PublicSettings
from shared.rules.hosts import ascii_origin
from shared.security.tokens import development_keys
from shared.security.user_settings import Keys


class Settings(PublicSettings):
    """The gateway stores nothing durable; the limits bound what one process caches and how many requests wait in it."""

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
    public_url: Annotated[str, AfterValidator(ascii_origin)] = Field(
        "http://localhost:8000",
        pattern=r"^https?://[^\s/]+$",
        description="The public address of the shop, as fans type it: search engines and shared links get it.",
    )
    events_max: int = Field(10_000, ge=1, description="Events whose line one process caches.")
    wrong_codes_per_s: float = Field(
        20,
        gt=0,
        le=10_000,
        description="Wrong access codes per event and second that one process accepts for checking.",
    )
    poll_min_ms: int = Field(2_000, ge=100, le=60_000, description="Shortest time between a fan's polls.")
    poll_max_ms: int = Field(10_000, ge=100, le=60_000, description="Longest time between a fan's polls.")
    polls_per_s: float = Field(
        2_000,
        gt=0,
        le=1e6,
        description="Polls of one event, all processes together: the first of the line may make so many at the usual "
        "pace, the others as many again, by longer times between two. None is longer than the liveness window.",
    )
    address_joins_per_s: float = Field(
        50,
        gt=0,
        le=1e6,
        description="Joins and challenges of one client address per second, at one process.",
    )
    address_joins_burst: int = Field(500, ge=1, le=1_000_000, description="Burst of the same.")
    identity_calls_per_s: float = Field(
        10,
        gt=0,
        le=1e6,
        description="Calls of one fan per second, all tabs together, at one process: status, join, pass, leave.",
    )
    identity_calls_burst: int = Field(100, ge=1, le=1_000_000, description="Burst of the same.")
    return_links_per_minute: int = Field(
        20, ge=1, le=10_000, description="Return links of one fan per minute at one process; as many at once."
    )
    plain_pages_per_s: float = Field(
        50,
        gt=0,
        le=10_000,
        description="Personal pages per second that one process renders for fans without scripts, a fifth of them for "
        "one client address; beyond them a small page asks again by itself.",
    )
