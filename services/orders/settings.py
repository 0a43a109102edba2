"""The settings of orders, from `ORDERS_<FIELD>` or `ONSALE_<FIELD>`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from services.orders.mail_settings import readable_address, server_of
from shared.process.settings import PublicSettings
from shared.rules.hosts import ascii_origin
from shared.security.tokens import b64, development_keys
from shared.security.user_settings import Keys, Maybe, listed


def _server(url: SecretStr | None) -> SecretStr | None:
    if url is not None:
        server_of(url.get_secret_value())
    return url


ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,32}$")]
ProviderNames = Annotated[tuple[ProviderName, ...], NoDecode, BeforeValidator(listed)]
WebhookSecrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(listed)]
Pauses = Annotated[tuple[float, ...], NoDecode, BeforeValidator(listed)]


class Settings(PublicSettings):
    """Defaults suit a laptop with the sandbox provider."""

    model_config = SettingsConfigDict(env_prefix="ORDERS_", hide_input_in_errors=True)

    body_max_bytes: int = Field(256 * 1024, ge=1024, description="Largest request body, which is an event file.")
    order_token_keys: Keys = Field(
        default_factory=lambda: development_keys("order-token"),
        description="Sign order tokens and derive references; long-lived.",
    )
    customer_keys: Keys = Field(
        default_factory=lambda: development_keys("customer"),
        description="Derive the customer keys by which inventory counts limits per customer; long-lived.",
    )
    pass_public_keys: Keys = Field(
        default_factory=lambda: development_keys("pass").public(), description="Verify passes: 32-byte public keys."
    )
    sandbox_webhook_keys: Keys = Field(
        default_factory=lambda: development_keys("sandbox-webhook"),
        description="Verify the sandbox's webhooks; the secret it signs with is the key in base64url.",
    )
    ticket_keys: Keys = Field(
        default_factory=lambda: development_keys("ticket"), description="Sign tickets, newest first: Ed25519 seeds."
    )

    postgres_lock_timeout_ms: int = Field(
        2_000,
        ge=100,
        le=60_000,
        description="How long a statement waits for a locked row, e.g. of a request with the same key.",
    )
    payment_providers: ProviderNames = Field(
        ("sandbox",), min_length=1, description="The payment providers: name[,name…]"
    )
    allow_sandbox: bool = Field(
        False, description="Allow the sandbox provider in production, for rehearsals: nobody really pays."
    )
    capture: Literal["before_confirm", "after_confirm"] = Field(
        "before_confirm",
        description="before_confirm captures at once; after_confirm authorises, and captures after confirming.",
    )
    sandbox_url: str = Field("http://127.0.0.1:8200", description="The sandbox payment provider.")
    sandbox_limits: Literal["none", "stripe"] = Field(
        "none", description="stripe: amounts that Stripe never takes are refused with the sandbox, too, as a rehearsal."
    )
    stripe_url: str = Field("https://api.stripe.com", description="Stripe's API.")
    stripe_secret_key: SecretStr | None = Field(None, description="Stripe's API key: sk_… or rk_…")
    stripe_webhook_secrets: WebhookSecrets = Field(
        (), description="Stripe's webhook signing secrets: whsec_…[,whsec_…]; two while one is replaced."
    )
    provider_timeout_s: float = Field(
        30.0, gt=0, le=120,
        description="Timeout of a call to a payment provider, half of it for connecting. After it the outcome "
        "of a charge is unknown.",
    )  # fmt: skip
    provider_connections_max: int = Field(
        256, ge=1, le=4096, description="Connections of one process to one payment provider; further calls wait."
    )
    payment_retries: int = Field(
        3, ge=0, le=20,
        description="After so many errors of a charge, while the provider answers other calls, the order is cancelled "
        "and its tickets are released. A provider that is unreachable, limits calls (429) or fails altogether is "
        "retried as long as the hold lasts.",
    )  # fmt: skip
    retry_max_s: float = Field(15.0, gt=0, le=600, description="Longest pause after a failed step.")
    provider_sync_interval_s: float = Field(
        2.0, gt=0, le=60, description="How often a charge in progress is read from the provider."
    )
    review_after_s: float = Field(
        900.0,
        ge=1,
        le=86_400,
        description="So long after its deadline an order with an unknown outcome goes to review.",
    )

    workers: int = Field(400, ge=1, le=1024, description="Orders that one process processes at once.")
    webhook_allow_loopback: bool = Field(
        False, description="Allow webhooks to this machine, also by http; for development only."
    )
    webhook_timeout_s: float = Field(15.0, gt=0, le=60, description="Timeout of a webhook delivery.")
    webhook_workers: int = Field(32, ge=1, le=256, description="Webhook deliveries of one process at once.")
    webhook_backoff_s: Pauses = Field(
        (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
        max_length=30,
        description="Pauses before the retries of a delivery; after the last it has failed.",
    )
    wrong_code_burst: int = Field(10, ge=1, le=1000, description="Wrong promo codes one fan may try at once.")
    wrong_codes_per_minute: float = Field(
        10, gt=0, le=10_000, description="Wrong promo codes one fan may try a minute after that."
    )

    public_url: Annotated[str, AfterValidator(ascii_origin)] = Field(
        "http://localhost:8000",
        pattern=r"^https?://[^\s/]+$",
        description="The public address of the shop, as fans type it.",
    )
    ticket_window_s: int = Field(
        0, ge=0, le=3600, description="Rotation interval of ticket codes; 0: they do not rotate."
    )
    pdf_workers: int = Field(2, ge=1, le=16, description="PDFs that one process renders at once.")
    prints_per_minute: float = Field(
        12, gt=0, le=10_000, description="PDFs of one order that a process renders a minute."
    )
    prints_burst: int = Field(12, ge=1, le=10_000, description="PDFs of one order that may be requested at once.")
    print_font: Path | None = Field(None, description="A TrueType font that papers use before those of the package.")
    seller: str = Field("", max_length=500, description="The seller on receipts: name, address, tax number.")

    smtp_url: Annotated[SecretStr | None, AfterValidator(_server), Maybe] = Field(
        None, description="The mail server: smtp://user:password@host:587 or smtps://…; without it no mail is sent."
    )
    smtp_starttls: Literal["auto", "always", "never"] = Field(
        "auto", description="auto: STARTTLS if the server offers it, and always before a password is sent."
    )
    smtp_timeout_s: float = Field(20.0, gt=0, le=120, description="Timeout of each reply of the mail server.")
    mail_from: Annotated[str, AfterValidator(readable_address)] = Field(
        "Onsale <tickets@localhost>", description="The sender of mails."
    )
    mails_per_s: int = Field(10, ge=1, le=1000, description="Mails one process sends a second, at most.")
    mail_retry_first_s: float = Field(30.0, gt=0, le=3600, description="First pause after a failed mail; it doubles.")
    mails_per_address: int = Field(
        8, ge=2, le=1000,
        description="Mails without a payment that one address gets a day, at most; half of them may be reminders and "
        "links sent again.",
    )  # fmt: skip
    mail_tickets: bool = Field(False, description="Attach the tickets to the confirmation as PDF.")
    reminder_lead_s: int = Field(120, ge=10, le=3600, description="Reminders are sent so long before a hold ends.")

    @model_validator(mode="after")
    def _is_complete_and_safe(self) -> Self:
        in_production = self.environment == "production"
        if in_production and self.webhook_allow_loopback:
            raise ValueError("webhook_allow_loopback is for development only: remove it in production")
        if in_production and "sandbox" in self.payment_providers and not self.allow_sandbox:
            raise ValueError(
                "the sandbox charges nobody: in production set ORDERS_PAYMENT_PROVIDERS, or "
                "ORDERS_ALLOW_SANDBOX=true for a rehearsal"
            )
        if "stripe" in self.payment_providers and not (self.stripe_secret_key and self.stripe_webhook_secrets):
            raise ValueError("the provider stripe needs stripe_secret_key and stripe_webhook_secrets")
        return self

    @property
    def captures_at_once(self) -> bool:
        return self.capture == "before_confirm"

    @property
    def sandbox_webhook_secrets(self) -> tuple[str, ...]:
        """The secrets that the sandbox may sign with, newest first."""
        return tuple(b64(raw) for raw in self.sandbox_webhook_keys.keys.values())
