"""The Redis keys of the queue. All keys of an event share one hash tag.

Except the room's own, they carry the epoch, so a reset deletes nothing. An event costs a few keys, a waiting fan a few
bits.
"""

from collections.abc import Iterable
from functools import lru_cache


def reporters() -> str:
    """Zset: process that reports heartbeats -> time of its last report (ms)."""
    return "queue:reporters"


def purchases_lease() -> str:
    """String: the process that consumes the purchases; it expires by itself."""
    return "queue:purchases"


def room(event_id: str) -> str:
    """Hash: state, limits, token bucket, per lane the counter and the head."""
    return f"queue:{{{event_id}}}:room"


def rebuild_lock(event_id: str) -> str:
    """String: lock of a process that rebuilds Redis from the database; it expires by itself."""
    return f"queue:{{{event_id}}}:rebuild_lock"


def called(event_id: str, epoch: int) -> str:
    """Zset: `lane:seq` -> claim deadline (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:called"


def active(event_id: str, epoch: int) -> str:
    """Zset: `lane:seq` -> session end (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:active"


def misses(event_id: str, epoch: int) -> str:
    """Hash: place -> missed calls; only places that missed one."""
    return f"queue:{{{event_id}}}:{epoch}:misses"


def unwritten(event_id: str, epoch: int) -> str:
    """Zset: change not yet in the database -> its number, which rises."""
    return f"queue:{{{event_id}}}:{epoch}:unwritten"


def inflight(event_id: str, epoch: int, lane: int) -> str:
    """Zset: batch being written to the database -> when it was last renewed (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:inflight"


def alive(event_id: str, epoch: int, lane: int) -> tuple[str, str, str]:
    """Bitmap: heartbeats, one of three; window `w` uses slot `w mod 3`."""
    slot = f"queue:{{{event_id}}}:{epoch}:{lane}:alive"
    return f"{slot}:0", f"{slot}:1", f"{slot}:2"


def taken(event_id: str, epoch: int, lane: int) -> str:
    """Bitmap: places with a call that was not missed."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:taken"


def done(event_id: str, epoch: int, lane: int) -> str:
    """Bitmap: ended places."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:done"


@lru_cache(4096)
def by_name(event_id: str, epoch: int, lane: int) -> dict[str, str]:
    """The keys of a line and of one of its lanes, by the names that the scripts give them."""
    of_line = {part.__name__: part(event_id, epoch) for part in (called, active, misses, unwritten)}
    of_lane = {part.__name__: part(event_id, epoch, lane) for part in (inflight, taken, done)}
    slots = {f"alive_{slot}": key for slot, key in enumerate(alive(event_id, epoch, lane))}
    return {"room": room(event_id), **of_line, **of_lane, **slots}


def parts(event_id: str, epoch: int, lanes: Iterable[int]) -> list[str]:
    """All keys of a line's state. Each exists even when it is empty, by its mark: a missing key has been lost, and the
    whole state is rebuilt.
    """
    of_all = (called, active, misses, unwritten)
    return [room(event_id), *(part(event_id, epoch) for part in of_all), *of_lanes(event_id, epoch, lanes)]


def of_lanes(event_id: str, epoch: int, lanes: Iterable[int]) -> list[str]:
    """The keys of each lane, in the order in which the scripts take them."""
    return [
        key
        for lane in lanes
        for key in (
            inflight(event_id, epoch, lane),
            *alive(event_id, epoch, lane),
            taken(event_id, epoch, lane),
            done(event_id, epoch, lane),
        )
    ]
