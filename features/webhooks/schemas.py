"""What the API of webhook endpoints takes and answers."""

from typing import Annotated, Literal, get_args

import httpx
from pydantic import AfterValidator, Field, StringConstraints

from shared.contracts.admin.orders import Answered, Time
from shared.contracts.fields import Body, EventId, Page, PlainText

PORT_MAX = 65_535
DeliveryStatus = Literal["pending", "delivered", "failed"]
WebhookKind = Literal[
    "order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded", "order.renamed"
]
WEBHOOK_KINDS: tuple[WebhookKind, ...] = get_args(WebhookKind)


def _plain_url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as refused:
        raise ValueError("not a URL") from refused
    if not url.host or url.userinfo or url.fragment or not 0 < (url.port or 443) <= PORT_MAX:
        raise ValueError("a URL with a host, without a user name and without a fragment")
    return text


WebhookUrl = Annotated[
    str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=1000), AfterValidator(_plain_url)
]


class NewWebhookEndpoint(Body):
    """Which events to send where, of one event or of all."""

    url: WebhookUrl
    kinds: list[WebhookKind] = Field(
        default_factory=lambda: list(WEBHOOK_KINDS), min_length=1, max_length=len(WEBHOOK_KINDS)
    )
    event_id: EventId | None = None
    description: PlainText | None = None
    reason: PlainText


class WebhookEndpoint(Answered):
    """A webhook endpoint. `failing_since`: no delivery succeeded since then."""

    endpoint_id: str
    url: str
    kinds: list[str]
    event_id: str | None
    description: str | None
    created_at: Time
    failing_since: Time | None
    disabled_at: Time | None
    disabled_reason: str | None


class CreatedWebhookEndpoint(WebhookEndpoint):
    """A new endpoint with its signing secret, which is shown this once."""

    secret: str


class WebhookEndpoints(Answered):
    """All webhook endpoints, oldest first."""

    endpoints: list[WebhookEndpoint]


class WebhookDelivery(Answered):
    """One message to one endpoint: `due_at` is the next attempt, `answer_status` the latest HTTP status received."""

    id: int
    endpoint_id: str
    message_id: str
    kind: str
    event_id: str
    reference: str
    status: str
    attempts: int
    created_at: Time
    due_at: Time | None
    delivered_at: Time | None
    answer_status: int | None
    error: str | None


class WebhookDeliveryPage(Page):
    """Deliveries of an endpoint, newest first."""

    deliveries: list[WebhookDelivery]
