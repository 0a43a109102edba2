"""Settings of the gateway."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import Keys, PassKeys, PublicSettings, QueueTokenKeys
from shared.security.tokens import development_keys


class Settings(QueueTokenKeys, PassKeys, PublicSettings):
    """The gateway stores nothing durable; the limits bound what one process caches and how many requests wait in it."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    ticket_public_keys: Keys = Field(
        default_factory=lambda: development_keys("ticket").public(), description="Public keys of tickets, newest first."
    )
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
        description="Joins and challenges of one client address per second; ten seconds' worth at once. More where a "
        "school or an office is behind one address.",
    )
    fan_calls_per_s: float = Field(
        10,
        gt=0,
        le=1e6,
        description="Calls of one fan, all tabs together, per second: status, join, pass, leave; ten seconds' worth at "
        "once.",
    )
