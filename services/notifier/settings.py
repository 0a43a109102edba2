"""Settings of the notifier."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.contracts.frames import FRAME_STALE_S
from shared.process.settings import PublicSettings
from shared.security.tokens import Keys, development_keys

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
    full_retry_ms: int = Field(10_000, ge=100, le=600_000, description="Reconnection delay of rejected clients.")
    streams_max: int = Field(20_000, ge=1, description="Open streams per process.")
    streams_new_per_s: int = Field(
        2_000, ge=1, description="Streams that end together reconnect to one process no faster than this."
    )
    lag_max_s: float = Field(
        2.0, ge=0.01, le=60, description="New streams are rejected while the event loop lags more than this."
    )
    memory_free_min_mib: int = Field(
        64,
        ge=0,
        le=1_048_576,
        description="New streams are rejected while the machine or container has less free memory than this.",
    )
    streams_per_identity: int = Field(10, ge=1, description="Open streams per fan or order and process.")
    filters_per_event: int = Field(
        64, ge=0, description="Distinct filters per event and process; further ones show everything."
    )
    stream_max_age_s: float = Field(1800.0, gt=0, le=86_400, description="A stream ends after 0.5 to 1.5 times this.")
    half_open_max_s: float = Field(
        30.0, ge=0.05, le=600, description="A connection whose peer acknowledges nothing is closed after this."
    )
    slow_reader_max_s: float = Field(
        10.0, gt=0, le=300, description="A reader that reads nothing is disconnected after this."
    )
    socket_buffer_bytes: int = Field(
        64 * 1024, ge=4096, description="Unsent data per reader in the kernel; in the process at most as much again."
    )
    first_snapshot_timeout_s: float = Field(
        3.0, gt=0, le=30, description="How long a new stream waits for its first snapshot."
    )
    ask_interval_s: float = Field(
        1.0, gt=0, le=60, description="How often frames are requested while Pub/Sub does not deliver them."
    )
    channel_stale_after_s: float = Field(
        FRAME_STALE_S, gt=0, description="An event's channel that is silent for this long counts as away."
    )
    feed_idle_ttl_s: float = Field(5.0, ge=0, le=300, description="How long a feed or topic outlives its last stream.")
    drain_s: float = Field(2.0, ge=0, le=300, description="Streams are ended over at most this long at shutdown.")
