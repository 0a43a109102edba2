"""What can be set about orders, from `ORDERS_<FIELD>` or `ONSALE_<FIELD>`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from services.orders.mail.smtp import readable_address, server_of
from shared.runtime.settings import Keys, PublicSettings, development_keys
from shared.security.auth import AdminKeys, AdminKeysSetting
from shared.security.tokens import b64
from shared.security.user_settings import Maybe


def _server(url: SecretStr | None) -> SecretStr | None:
    if url is not None:
        server_of(url.get_secret_value())
    return url


def _parts(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,32}$")]
ProviderNames = Annotated[tuple[ProviderName, ...], NoDecode, BeforeValidator(_parts)]
WebhookSecrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_parts)]


class Settings(PublicSettings):
    """Defaults suit a laptop with the sandbox provider."""

    model_config = SettingsConfigDict(env_prefix="ORDERS_", hide_input_in_errors=True)

    order_token_keys: Keys = Field(
        default_factory=lambda: development_keys("order-token"),
        description="Sign order tokens and derive references; long-lived.",
    )
    customer_keys: Keys = Field(
        default_factory=lambda: development_keys("customer"),
        description="Name customers to inventory without telling who they are; long-lived.",
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
    admin_keys: AdminKeysSetting = Field(default_factory=AdminKeys, description="name:role:secret[,…]")

    postgres_lock_timeout_ms: int = Field(
        2_000, ge=100, le=60_000, description="A request with the same key waits so long for the first one's row."
    )
    payment_providers: ProviderNames = Field(("sandbox",), min_length=1, description="Who may charge: name[,name…]")
    allow_sandbox: bool = Field(False, description="Production with the sandbox, on purpose: nobody really pays.")
    capture: Literal["before_confirm", "after_confirm"] = Field(
        "before_confirm", description="after_confirm authorises, and charges once the tickets are the fan's."
    )
    sandbox_url: str = Field("http://127.0.0.1:8200", description="The sandbox payment provider.")
    stripe_url: str = Field("https://api.stripe.com", description="Stripe's API.")
    stripe_secret_key: SecretStr | None = Field(None, description="sk_… or rk_…: what Stripe knows us by.")
    stripe_webhook_secrets: WebhookSecrets = Field(
        (), description="whsec_…[,whsec_…]: Stripe signs webhooks with one of them; two while one is replaced."
    )
    provider_timeout_s: float = Field(
        30.0, gt=0, le=120,
        description="For a whole call; past it the outcome of a charge is unknown. Connecting may take half of it.",
    )  # fmt: skip
    provider_connections_max: int = Field(
        256, ge=1, le=4096, description="Connections to one payment provider from this process; calls beyond wait."
    )
    payment_retries: int = Field(
        3, ge=0, le=20,
        description="After so many errors in answer to its charge, of a provider that answers otherwise, an order is "
        "given up and its tickets go back. A provider that is away, busy (429) or broken altogether is asked for as "
        "long as the hold lasts.",
    )  # fmt: skip
    retry_first_s: float = Field(0.5, gt=0, le=60, description="First pause after a failure; doubles, with jitter.")
    retry_max_s: float = Field(15.0, gt=0, le=600, description="Longest pause after a failure.")
    poll_s: float = Field(2.0, gt=0, le=60, description="How often a charge in progress is looked up.")
    review_after_s: float = Field(900.0, ge=1, le=86_400, description="Unknown for so long past the deadline: review.")
    post_end_sync_delays_s: tuple[float, ...] = Field(
        (60.0, 3600.0), description="After its end an order is looked up again."
    )

    workers: int = Field(400, ge=1, le=1024, description="Orders settled at once by this process.")
    event_workers_max: int = Field(
        1024, ge=1, le=10_000, description="Orders of one event settled at once, everywhere."
    )
    sweep_s: float = Field(1.0, gt=0, le=10, description="How often due work is looked for without a wake-up call.")
    lease_s: float = Field(
        9.0, ge=1, le=120, description="A worker that died is replaced after this; a live one renews."
    )
    job_accept_s: float = Field(1.0, gt=0, le=10, description="If a job is not accepted by then, the request settles.")
    inline_slots_max: int = Field(
        8, ge=0, le=256, description="Requests that may settle their order themselves at once."
    )
    inline_timeout_s: float = Field(5.0, gt=0, le=60, description="How long such a request waits for the outcome.")
    webhook_allow_loopback: bool = Field(
        False, description="Webhooks may go to this machine, also by http: development only."
    )
    webhook_timeout_s: float = Field(15.0, gt=0, le=60, description="A webhook's receiver must have answered by then.")
    webhook_poll_interval_s: float = Field(1.0, gt=0, le=60, description="How often owed webhooks are looked for.")
    webhook_workers: int = Field(32, ge=1, le=256, description="Webhooks on their way at once from this process.")
    webhook_endpoint_concurrency: int = Field(
        4, ge=1, le=100, description="Webhooks on their way to one endpoint, everywhere."
    )
    webhook_backoff_s: tuple[float, ...] = Field(
        (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
        max_length=30,
        description="Pauses before a webhook is tried again; after the last it has failed.",
    )
    webhook_disable_after_s: float = Field(
        5 * 86_400, gt=0, description="An endpoint that took nothing for so long is disabled."
    )
    wrong_code_burst: int = Field(10, ge=1, le=1000, description="Wrong promo codes one fan may try at once.")
    wrong_codes_per_minute: float = Field(10, gt=0, le=10_000, description="And then so many a minute.")
    lapsed_pass_s: float = Field(
        3600.0, ge=0, le=86_400, description="So long after its end a pass proves who made a hold. It opens no order."
    )
    load_interval_ms: int = Field(1000, ge=50, le=10_000, description="How often the gatekeeper is shown our load.")

    public_url: str = Field("http://localhost:8000", pattern=r"^https?://[^\s/]+$", description="As fans type it.")
    ticket_window_s: int = Field(0, ge=0, le=3600, description="Codes of tickets move this often; 0: they stand still.")
    pdf_workers: int = Field(2, ge=1, le=16, description="PDFs that one process draws at once.")
    prints_waiting_max: int = Field(50, ge=1, le=1000, description="PDFs that may wait for it.")
    prints_kept_bytes: int = Field(
        16 * 1024 * 1024, ge=0, le=1 << 31, description="PDFs that one process keeps to answer them again."
    )
    prints_per_minute: float = Field(
        12, gt=0, le=10_000, description="PDFs of one order that a process gives a minute."
    )
    prints_burst: int = Field(12, ge=1, le=10_000, description="As many of them may be asked for at once.")
    print_font: Path | None = Field(None, description="A TrueType font for names beyond Latin-1.")
    seller: str = Field("", max_length=500, description="Who sells, on receipts: name, address, tax number.")

    smtp_url: Annotated[SecretStr | None, AfterValidator(_server), Maybe] = Field(
        None, description="smtp://user:password@host:587 or smtps://…; nothing: no mail is written."
    )
    smtp_starttls: Literal["auto", "always", "never"] = Field(
        "auto", description="auto: if the server offers it, and always before a password is sent."
    )
    smtp_timeout_s: float = Field(20.0, gt=0, le=120, description="For each word with the mail server.")
    mail_from: Annotated[str, AfterValidator(readable_address)] = Field(
        "Onsale <tickets@localhost>", description="Who mail is from."
    )
    mails_per_s: int = Field(10, ge=1, le=1000, description="Mails one process sends in a second, at most.")
    mail_retry_first_s: float = Field(30.0, gt=0, le=3600, description="First pause after a failure; doubles.")
    mail_tickets: bool = Field(False, description="Tickets are attached to the confirmation as PDF.")
    reminder_lead_s: int = Field(120, ge=10, le=3600, description="Reminders come so long before a hold ends.")

    @model_validator(mode="after")
    def _send_nothing_home_in_production(self) -> Self:
        if self.environment == "production" and self.webhook_allow_loopback:
            raise ValueError("webhook_allow_loopback is for development")
        return self

    @model_validator(mode="after")
    def _no_free_tickets_in_production(self) -> Self:
        if self.environment == "production" and "sandbox" in self.payment_providers and not self.allow_sandbox:
            raise ValueError(
                "in production the sandbox lets everybody choose to pay nothing: set ORDERS_PAYMENT_PROVIDERS, or to "
                "rehearse ORDERS_ALLOW_SANDBOX=true"
            )
        return self

    @property
    def captures_at_once(self) -> bool:
        return self.capture == "before_confirm"

    @model_validator(mode="after")
    def _stripe_has_its_secrets(self) -> Self:
        if "stripe" in self.payment_providers and not (self.stripe_secret_key and self.stripe_webhook_secrets):
            raise ValueError("for stripe these secrets must be set: stripe_secret_key, stripe_webhook_secrets")
        return self

    @property
    def sandbox_webhook_secrets(self) -> tuple[str, ...]:
        """What the sandbox may sign with, newest first."""
        return tuple(b64(raw) for raw in self.sandbox_webhook_keys.keys.values())
