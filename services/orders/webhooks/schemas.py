"""What operators may ask of endpoints, within its limits."""

from typing import Annotated, Literal

import httpx
from pydantic import AfterValidator, Field, StringConstraints

from shared.web.fields import Body, EventId, PlainText

PORT_MAX = 65_535
HookKind = Literal["order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded"]
KINDS: tuple[HookKind, ...] = (
    "order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded",
)  # fmt: skip


def _plain(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as refused:
        raise ValueError("not a URL") from refused
    if not url.host or url.userinfo or url.fragment or not 0 < (url.port or 443) <= PORT_MAX:
        raise ValueError("a URL with a host, without a user name and without a fragment")
    return text


HookUrl = Annotated[str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=1000), AfterValidator(_plain)]


class NewHook(Body):
    """Where to send what, for one event or for all."""

    url: HookUrl
    kinds: list[HookKind] = Field(default_factory=lambda: list(KINDS), min_length=1, max_length=len(KINDS))
    event_id: EventId | None = None
    description: PlainText | None = None
    reason: PlainText
