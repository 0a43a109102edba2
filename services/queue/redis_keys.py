"""Every key of the line. All keys of an event share one hash tag; below the room they carry the epoch, so a reset
deletes nothing. An event costs a handful of keys, a waiting fan costs bits.
"""

from collections.abc import Iterable

REPORTERS = "queue:reporters"  # zset: process that reports signs of life -> when it last did (ms)


def room(event_id: str) -> str:
    """Hash: state, limits, token bucket, per lane the counter and the head."""
    return f"queue:{{{event_id}}}:room"


def filling(event_id: str) -> str:
    """String: a process fills the engine from the ledger; gone by itself after a moment."""
    return f"queue:{{{event_id}}}:filling"


def called(event_id: str, epoch: int) -> str:
    """Zset: `lane:seq` -> claim deadline (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:called"


def active(event_id: str, epoch: int) -> str:
    """Zset: `lane:seq` -> session end (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:active"


def misses(event_id: str, epoch: int) -> str:
    """Hash: only places that missed."""
    return f"queue:{{{event_id}}}:{epoch}:misses"


def unwritten(event_id: str, epoch: int) -> str:
    """Zset: rising number -> change not yet in the ledger."""
    return f"queue:{{{event_id}}}:{epoch}:unwritten"


def inflight(event_id: str, epoch: int, lane: int) -> str:
    """Zset: batch on its way to the ledger -> when it was last renewed (ms)."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:inflight"


def seen(event_id: str, epoch: int, lane: int) -> tuple[str, str, str]:
    """Three bitmaps of signs of life; window `w` uses slot `w mod 3`."""
    slot = f"queue:{{{event_id}}}:{epoch}:{lane}:seen"
    return f"{slot}:0", f"{slot}:1", f"{slot}:2"


def taken(event_id: str, epoch: int, lane: int) -> str:
    """Bitmap: called, and not sent back by a miss."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:taken"


def done(event_id: str, epoch: int, lane: int) -> str:
    """Bitmap: completed, left, session over, or out of chances."""
    return f"queue:{{{event_id}}}:{epoch}:{lane}:done"


def parts(event_id: str, epoch: int, lanes: Iterable[int]) -> list[str]:
    """All that the line's state consists of. Each is there even when it is empty, by its mark: what is not there has
    been lost, and the whole is filled anew.
    """
    of_all = (called, active, misses, unwritten)
    return [room(event_id), *(part(event_id, epoch) for part in of_all), *of_lanes(event_id, epoch, lanes)]


def of_lanes(event_id: str, epoch: int, lanes: Iterable[int]) -> list[str]:
    """The keys of each lane in the order the scripts take them."""
    return [
        key
        for lane in lanes
        for key in (
            inflight(event_id, epoch, lane),
            *seen(event_id, epoch, lane),
            taken(event_id, epoch, lane),
            done(event_id, epoch, lane),
        )
    ]
