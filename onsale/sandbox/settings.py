"""Settings of the sandbox: where it is, and how slow it is. Its own waits and limits are no settings.

Request bodies of the sandbox: no unknown fields, every string and number limited, card numbers refused.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from onsale.sandbox.charge import BEHAVIOURS, RequestRefused
from shared.contracts.fields import Currency, refusal


class SandboxSettings(BaseSettings):
    """Defaults are those of a slow provider; the environment overrides them with `ONSALE_SANDBOX_…`."""

    model_config = SettingsConfigDict(env_prefix="ONSALE_SANDBOX_", frozen=True, extra="forbid")

    webhook_url: str | None = Field(None, pattern=r"^https?://", description="where events go; nowhere when unset")
    webhook_secret: str = Field("sandbox-secret", min_length=1, max_length=256, description="signs webhooks")
    books_path: Path | None = Field(None, description="JSON lines of every charge and refund; memory only when unset")
    public_url: str | None = Field(
        None, pattern=r"^https?://", description="where browsers find the hosted page; the caller's address when unset"
    )

    latency_s: float = Field(0.0, ge=0, le=60, description="before every answer to a charge")
    slow_s: float = Field(2.0, ge=0, le=60, description="before the answer of method slow")
    hang_s: float = Field(60.0, ge=0, le=600, description="before the answer of method timeout_after_success")
    late_after_s: float = Field(
        3.0, ge=0, le=3600, description="until a late success, unless the charge says so itself"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The times and sizes that nobody who rehearses needs to turn, and that tests shorten."""

    reorder_gap_s: float = 0.5  # between two events sent in the wrong order
    webhook_retry_delays_s: tuple[float, ...] = (0.2, 1.0, 3.0, 9.0, 27.0, 60.0, 60.0)  # between tries of one webhook
    webhook_timeout_s: float = 10.0  # for one try
    webhook_senders: int = 16  # webhooks on their way at once
    webhooks_waiting_max: int = 100_000  # more are lost, and counted
    charges_max: int = 1_000_000  # charges that can be stored


DEFAULTS = Tuning()


VISIBLE_ASCII = r"^[\x21-\x7e]+$"
STATEMENT = r"^[\x20-\x7e]*[A-Za-z][\x20-\x7e]*$"
LATE_AFTER_MAX_S = 3600.0

WholeNumber = Annotated[int, Field(ge=-(2**53), le=2**53)]
MetadataValue = Annotated[str, Field(max_length=500)] | WholeNumber | float | bool | None
Shape = TypeVar("Shape", bound=BaseModel)


def _known_method(method: str) -> str:
    if method not in BEHAVIOURS:
        raise ValueError(f"one of {', '.join(BEHAVIOURS)}")
    return method


class Closed(BaseModel):
    """Unknown fields are refused, and nothing is coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ChargeRequest(Closed):
    reference: str = Field(pattern=VISIBLE_ASCII, max_length=200)
    amount_minor: int = Field(gt=0, le=10**12)
    currency: Currency
    method: Annotated[str, AfterValidator(_known_method)]
    token: str | None = Field(None, pattern=r"^[\x20-\x7e]+$", max_length=200)
    return_url: str | None = Field(None, pattern=r"^https?://[\x21-\x7e]+$", max_length=2000)
    capture: bool = True
    event_id: str | None = Field(None, max_length=200)
    description: str | None = Field(None, max_length=500)
    statement: str | None = Field(None, pattern=STATEMENT, max_length=22)
    metadata: dict[Annotated[str, Field(max_length=64)], MetadataValue] = Field(default_factory=dict, max_length=20)

    @field_validator("metadata")
    @classmethod
    def _late_after_is_a_time(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        late_after_s = metadata.get("late_after_s", 0)
        if isinstance(late_after_s, bool | str) or not 0 <= (late_after_s or 0) <= LATE_AFTER_MAX_S:
            raise ValueError(f"late_after_s is a number of seconds up to {LATE_AFTER_MAX_S:.0f}")
        return metadata

    @property
    def needs_page(self) -> bool:
        """Whether the fan pays on the hosted page."""
        return self.method == "redirect" or self.return_url is not None

    def late_after_s(self, default_s: float) -> float:
        parsed = self.metadata.get("late_after_s")
        return default_s if parsed is None else float(parsed)

    def fingerprint(self) -> str:
        """Equal for equal requests, whatever the order and spacing of their JSON."""
        return _digest(orjson.dumps(self.model_dump(), option=orjson.OPT_SORT_KEYS))


class RefundRequest(Closed):
    amount_minor: int = Field(gt=0, le=10**12)

    def fingerprint(self, charge_id: str) -> str:
        return _digest(f"{charge_id} {self.amount_minor}".encode())


class DisputeRequest(Closed):
    """Opens a dispute of a charge, or ends the open one. An `inquiry` withdraws no money."""

    status: Literal["open", "won", "lost"]
    amount_minor: int | None = Field(None, gt=0, le=10**12)
    inquiry: bool = False


class ControlRequest(Closed):
    down_for_s: float | None = Field(None, ge=0, le=3600)
    rate_limit_per_s: float | None = Field(None, ge=0, le=1_000_000)
    deliver_late_s: float | None = Field(None, ge=0, le=3600)
    latency_s: float | None = Field(None, ge=0, le=60)
    forge_webhook: dict[str, Any] | None = None
    reset: Literal[True] | None = None


def read(shape: type[Shape], body: bytes) -> Shape:
    """The body as this model. Raises `RequestRefused` (422) that names the fields without repeating their values."""
    try:
        parsed = shape.model_validate_json(body)
    except ValidationError as problem:
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'body'}: {refusal(fault)}" for fault in problem.errors()[:5]]
        raise RequestRefused(422, "invalid_request", "; ".join(faults)) from None
    if isinstance(parsed, ChargeRequest) and parsed.token is not None and looks_like_card_number(parsed.token):
        raise RequestRefused(422, "card_number", "Card numbers are not accepted here: send a token.")
    return parsed


def looks_like_card_number(token: str) -> bool:
    """Nothing but 12 to 19 digits, or 13 to 19 digits inside other text with a valid check digit."""
    if re.fullmatch(r"\d{12,19}", re.sub(r"[-._/ ]", "", token)):
        return True
    runs = re.findall(r"(?<!\d)\d(?:[-._/ ]?\d){12,18}(?!\d)", token)
    return any(_luhn(re.sub(r"\D", "", run)) for run in runs)


def _luhn(digits: str) -> bool:
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _digest(canonical: bytes) -> str:
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()
