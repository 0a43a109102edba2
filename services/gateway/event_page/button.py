"""What the button on a promoter's site shows: public facts, in words, for anyone."""

from pydantic import BaseModel, Field

from services.gateway.event_page.facts import OVER, EventFacts
from shared.runtime.clock import rfc3339
from shared.words.words import Words

POLL_S, POLL_AFTER_THE_END_S = 15, 300
LINE_SHOWN_IN = frozenset({"prequeue", "open", "last_chance", "paused", "draining"})


class ButtonAnswer(BaseModel):
    """The button's words and colours. In `status`, `{moment}` stands for `at` in the visitor's own time."""

    name: str
    state: str | None
    label: str
    status: str
    window: str = Field(description="What a screen reader adds: that it opens a window.")
    at: str | None
    direction: str
    accent: str | None
    accent_dark: str | None
    poll_after_s: int


def button(facts: EventFacts, text: Words) -> ButtonAnswer:
    """Raises `Unavailable` and `UnknownEvent`."""
    event, line, state = facts.found, facts.line, facts.state
    starts_ms = line.frame.sale_starts_at_ms if line and state == "prequeue" else None
    words = []
    if starts_ms is not None:
        words.append(text("button_starts", moment="{moment}"))
    elif state:
        words.append(text(f"state_{state}"))
    if line and state in LINE_SHOWN_IN and line.waiting:
        words.append(text("button_in_line", n=line.waiting))
    brand = event.brand
    return ButtonAnswer(
        name=event.name, state=state, label=text("button_label"), status=" · ".join(words),
        window=text("button_window"), at=rfc3339(starts_ms) if starts_ms is not None else None,
        direction=text.direction, accent=brand.accent if brand else None,
        accent_dark=brand.accent_dark if brand else None,
        poll_after_s=POLL_AFTER_THE_END_S if state in OVER else POLL_S,
    )  # fmt: skip
