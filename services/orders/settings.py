"""The settings of orders, from `ORDERS_<FIELD>` or `ONSALE_<FIELD>`."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.process.settings import Keys, OrderTokenKeys, PassKeys, PublicAddress, PublicSettings, listed
from shared.security.tokens import b64, development_keys

ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,32}$")]
ProviderNames = Annotated[tuple[ProviderName, ...], NoDecode, BeforeValidator(listed)]


class Settings(PassKeys, OrderTokenKeys, PublicAddress, PublicSettings):
    """Defaults suit a laptop with the sandbox provider."""

    model_config = SettingsConfigDict(env_prefix="ORDERS_", hide_input_in_errors=True)

    customer_keys: Keys = Field(
        default_factory=lambda: development_keys("customer"),
        description="Derive the customer keys by which inventory counts limits per customer; long-lived.",
    )
    sandbox_webhook_keys: Keys = Field(
        default_factory=lambda: development_keys("sandbox-webhook"),
        description="Verify the sandbox's webhooks; the secret it signs with is the key in base64url.",
    )
    ticket_keys: Keys = Field(
        default_factory=lambda: development_keys("ticket"), description="Sign tickets, newest first: Ed25519 seeds."
    )

    payment_providers: ProviderNames = Field(
        ("sandbox",), min_length=1, description="The payment providers: name[,name…]"
    )
    capture: Literal["before_confirm", "after_confirm"] = Field(
        "before_confirm",
        description="before_confirm captures at once; after_confirm authorises, and captures after confirming.",
    )
    sandbox_url: str = Field("http://127.0.0.1:8200", description="The sandbox payment provider.")
    sandbox_limits: ProviderName = Field(
        "none",
        description="A provider, such as stripe, whose limits the sandbox keeps as a rehearsal; none: it takes any "
        "amount.",
    )
    provider_timeout_s: float = Field(
        30.0, gt=0, le=120,
        description="Timeout of a call to a payment provider, half of it for connecting. After it the outcome "
        "of a charge is unknown.",
    )  # fmt: skip
    provider_sync_interval_s: float = Field(
        2.0, gt=0, le=60, description="How often a charge in progress is read from the provider."
    )
    review_after_s: float = Field(
        900.0,
        ge=1,
        le=86_400,
        description="So long after its deadline an order with an unknown outcome goes to review.",
    )

    ticket_window_s: int = Field(
        0, ge=0, le=3600, description="Rotation interval of ticket codes; 0: they do not rotate."
    )

    @model_validator(mode="after")
    def _is_complete_and_safe(self) -> Self:
        if self.environment == "production" and "sandbox" in self.payment_providers:
            raise ValueError(
                "the sandbox charges nobody: in production set ORDERS_PAYMENT_PROVIDERS, or to rehearse "
                "ONSALE_ENVIRONMENT=rehearsal"
            )
        return self

    @property
    def captures_at_once(self) -> bool:
        return self.capture == "before_confirm"

    @property
    def sandbox_webhook_secrets(self) -> tuple[str, ...]:
        """The secrets that the sandbox may sign with, newest first."""
        return tuple(b64(raw) for raw in self.sandbox_webhook_keys.keys.values())
