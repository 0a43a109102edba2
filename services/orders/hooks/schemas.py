"""What operators may ask of endpoints, within its limits."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from shared.inputs import Body, EventId, PlainText

HookKind = Literal["order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded"]
KINDS: tuple[HookKind, ...] = (
    "order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded",
)  # fmt: skip


def _plain(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("a URL with a host, without a user name and without a fragment")
    _ = parts.port  # raises ValueError for one that is none
    return url


HookUrl = Annotated[str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=1000), AfterValidator(_plain)]


class NewHook(Body):
    """Where to send what, for one event or for all."""

    url: HookUrl
    kinds: list[HookKind] = Field(default_factory=lambda: list(KINDS), min_length=1, max_length=len(KINDS))
    event_id: EventId | None = None
    description: PlainText | None = None
    reason: PlainText
