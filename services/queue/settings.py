"""The queue's settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime.settings import Keys, ServiceSettings, development_keys
from shared.security.auth import AdminKeys, AdminKeysSetting


class Settings(ServiceSettings):
    """From `QUEUE_<FIELD>` and, failing that, `ONSALE_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="QUEUE_", frozen=True, arbitrary_types_allowed=True, extra="ignore")

    pass_keys: Keys = Field(
        default_factory=lambda: development_keys("pass"), description="Private seeds that sign passes."
    )
    checkout_keys: Keys = Field(
        default_factory=lambda: development_keys("checkout"), description="Make the checkout key of an admission."
    )
    admin_keys: AdminKeysSetting = Field(AdminKeys(), description="name:role:secret[,…] of operators.")
    tick_s: float = Field(0.2, ge=0.02, le=5, description="Time between two turns of the gatekeeper.")
    ramp_after_loss: bool = Field(True, description="After a loss of the engine the rate ramps up within 30 s.")
    join_batches_in_flight_max: int = Field(64, ge=1, le=1024, description="Batches of joins worked on at once.")
    guard_interval_s: float = Field(1.0, ge=0.05, le=5, description="Time between two looks of the overload guard.")
    guard_step_s: float = Field(2.0, ge=0.05, le=10, description="Time between two steps down of the guard.")
    throttle_recovery_s: float = Field(60.0, ge=0.5, le=3600, description="In which the guard gives a whole rate back.")
    autotune_interval_s: float = Field(10.0, ge=0.2, le=600, description="Autotune moves a rate once in this time.")
