"""Settings of the queue service."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import ServiceSettings
from shared.security.tokens import Keys, development_keys


class Settings(ServiceSettings):
    """From `QUEUE_<FIELD>` and, failing that, `ONSALE_<FIELD>`."""

    unread_keys = frozenset({"holder_keys"})
    model_config = SettingsConfigDict(env_prefix="QUEUE_", frozen=True, arbitrary_types_allowed=True, extra="ignore")

    pass_keys: Keys = Field(
        default_factory=lambda: development_keys("pass"), description="Private seeds that sign passes."
    )
    checkout_keys: Keys = Field(
        default_factory=lambda: development_keys("checkout"),
        description="Secrets that derive the checkout key of a pass.",
    )
    body_max_bytes: int = Field(256 * 1024, ge=1024, description="Largest request body, which is an event file.")
    tick_s: float = Field(0.2, ge=0.02, le=5, description="Time between two ticks of the gatekeeper.")
    ramp_after_loss: bool = Field(True, description="After a loss of Redis the rate ramps up within 30 s.")
    join_batches_in_flight_max: int = Field(64, ge=1, le=1024, description="Batches of joins processed at once.")
    guard_interval_s: float = Field(1.0, ge=0.05, le=5, description="Time between two runs of the control loop.")
    guard_step_s: float = Field(2.0, ge=0.05, le=10, description="Time between two steps down of the overload guard.")
    throttle_recovery_s: float = Field(
        60.0,
        ge=0.5,
        le=3600,
        description="Time in which the overload guard restores a whole rate; half is back sooner.",
    )
    autotune_interval_s: float = Field(
        10.0, ge=0.2, le=600, description="Autotune changes a rate at most once in this time."
    )
