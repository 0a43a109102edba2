"""Settings of the notifier."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import OrderTokenKeys, PassKeys, PublicSettings, QueueTokenKeys

Transport = Literal["detached", "asgi"]


class Settings(QueueTokenKeys, PassKeys, OrderTokenKeys, PublicSettings):
    """The notifier stores nothing durable; the limits bound the number of streams, their rate and slow readers."""

    model_config = SettingsConfigDict(env_prefix="NOTIFIER_")

    transport: Transport = Field(
        "detached", description="Transport of event streams; see docs/operate/streams.md. detached falls back to asgi."
    )
    user_jwt_cookie: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="Cookie that may carry a user's JWT; empty: Bearer only."
    )
    window_ms: int = Field(250, ge=0, le=10_000, description="Shortest time between two frames of one topic.")
    streams_max: int = Field(20_000, ge=1, description="Open streams per process.")
    streams_per_identity: int = Field(10, ge=1, description="Open streams per fan or order.")
    drain_s: float = Field(2.0, ge=0, le=300, description="Streams are ended over at most this long at shutdown.")
