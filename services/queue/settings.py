"""Settings of the queue service."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.process.settings import Keys, ServiceSettings
from shared.security.tokens import development_keys


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
