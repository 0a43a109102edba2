"""Settings of the notifier."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.contracts.frames import FRAME_STALE_S
from shared.process.settings import PublicSettings
from shared.security.tokens import development_keys
from shared.security.user_settings import Keys

Transport = Literal["detached", "asgi"]


class Settings(PublicSettings):
    """The notifier stores nothing durable; the limits bound the number of streams, their rate and slow readers."""

    model_config = SettingsConfigDict(env_prefix="NOTIFIER_")

    queue_token_keys: Keys = Field(
        default_factory=lambda: development_keys("queue-token"), description="Verify queue tokens."
    )
    pass_public_keys: Keys = Field(
        default_factory=lambda: development_keys("pass").public(), description="Public keys of passes."
    )
    order_token_keys: Keys = Field(
        default_factory=lambda: development_keys("order-token"), description="Verify order tokens."
    )
    transport: Transport = Field(
        "detached", description="Transport of event streams; see docs/operate/streams.md. detached falls back to asgi."
    )
    user_jwt_cookie: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="Cookie that may carry a user's JWT; empty: Bearer only."
    )
    window_ms: int = Field(250, ge=0, le=10_000, description="Shortest time between two frames of one topic.")
    heartbeat_s: float = Field(15.0, gt=0, le=60, description="How often a silent stream gets a heartbeat.")
    retry_ms: int = Field(
        2_000, ge=100, le=60_000, description="Reconnection delay of clients: this to twice this long."
    )
    streams_max: int = Field(20_000, ge=1, description="Open streams per process.")
    streams_new_per_s: int = Field(
        2_000, ge=1, description="Streams that end together reconnect to one process no faster than this."
    )
    memory_free_min_mib: int = Field(
        64,
        ge=0,
        le=1_048_576,
        description="New streams are rejected while the machine or container has less free memory than this.",
    )
    streams_per_identity: int = Field(10, ge=1, description="Open streams per fan or order and process.")
    channel_stale_after_s: float = Field(
        FRAME_STALE_S, gt=0, description="An event's channel that is silent for this long counts as away."
    )
    drain_s: float = Field(2.0, ge=0, le=300, description="Streams are ended over at most this long at shutdown.")
