"""The copy of an event that a rehearsal sells: the same places, prices, limits and rate, open at once.

What a simulated fan cannot pass, and what would reach beyond the copy, is left out and said in words.
"""

from shared.contracts.event_file import EventFile
from shared.contracts.lanes import Lane
from shared.contracts.room_options import EntryRules, ForwardAuthRules

EVENT_ID_MAX, NAME_MAX = 32, 200
MARK, NAME_MARK = "-rehearsal", " (rehearsal)"


def copy_id(event_id: str, number: int) -> str:
    """The id of the event's copy of this number: `arena-rehearsal`, `arena-rehearsal-2`. A long id is cut."""
    suffix = MARK if number == 1 else f"{MARK}-{number}"
    return event_id[: EVENT_ID_MAX - len(suffix)] + suffix


def copy_of(event: EventFile, event_id: str) -> tuple[EventFile, list[str]]:
    """The copy's event file, and what was left out of it."""
    room, sales = event.room, event.sales
    general = next(lane for lane in room.lanes if lane.lane == 0)
    times = room.queue_opens_at, room.sale_starts_at, room.sale_ends_at, general.opens_at
    reasons = {
        "the times of the sale: the copy opens at once": any(times),
        "the lottery: fans are called in the order in which they come": room.lottery is not None,
        "the lanes " + ", ".join(lane.name for lane in room.lanes if lane.lane)
        + ": simulated fans have no code and no claim": len(room.lanes) > 1,
        "sign-in: simulated fans have no account": room.entry.signed_in_only,
        "proof of work: all simulated fans come from one address": room.friction.proof_of_work != "off",
        "forward-auth: simulated fans buy here": room.gate != ForwardAuthRules(),
        "the share of fans who pass the waiting room by: all go through it": room.rollout_percent < 100,
        "the limit over the tour": sales.tour is not None,
    }  # fmt: skip
    rehearsed = room.model_copy(update={
        "queue_opens_at": None, "sale_starts_at": None, "sale_ends_at": None, "ordering": "fifo", "lottery": None,
        "lanes": (Lane(**{**dict(general), "opens_at": None}),), "entry": EntryRules(), "gate": ForwardAuthRules(),
        "friction": room.friction.model_copy(update={"proof_of_work": "off"}), "rollout_percent": 100.0,
    })  # fmt: skip
    copied = event.model_copy(update={
        "event_id": event_id, "name": event.name[: NAME_MAX - len(NAME_MARK)] + NAME_MARK, "rehearsal": True,
        "room": rehearsed, "sales": sales.model_copy(update={"tour": None}),
    })  # fmt: skip
    return EventFile.model_validate(copied.model_dump()), [words for words, applies in reasons.items() if applies]
