"""The Redis keys of an event's stock; one hash tag per event, so that one script may use them all.

A single lost key, evicted or deleted, must not read as empty: no seat taken, no limit used, no pass revoked. Therefore
every key but `dirty` exists from the start of a rebuild on, holding a marker field `epoch`, and no script
creates one. A script that misses a key marks the stock as not ready, the monitor checks all keys, and the event is
rebuilt.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

PARTS = {
    "meta": "Hash: whether the stock is ready, its epoch, clock and version, and the Redis process that holds it.",
    "counts": "Hash: how many places of each section are available, held, sold and blocked.",
    "holds": "Hash: live reservations by id.",
    "deadlines": "Zset: reservation -> when it may be released (ms).",
    "usage": "Hash: tickets that each holder holds or has bought.",
    "revoked": "Zset: revoked pass -> its expiry (ms).",
    "gone": "Hash: reservations that ended in the last two minutes: their version, and whether they were bought.",
    "gone_before": "Hash: those that ended in the two minutes before.",
    "dirty": "Set: sections that changed since the last frame.",
    "map:": "String: a mark for each seat of a section, whose id ends the key.",
}
KEPT_MAX = 4_096  # events whose keys are kept, because every call of a script names some
EPOCH = b"epoch"  # the marker: a field of a hash, a member of a sorted set that is never due


@dataclass(frozen=True, slots=True)
class Keys:
    """`map` is a prefix: a section's map is `map + section_id`. Scores in `deadlines` are ms and include the grace.

    `dirty` is deleted with every frame; if it is lost, the next repeated frame has the same information.
    """

    meta: str
    counts: str
    holds: str
    deadlines: str
    usage: str
    revoked: str
    gone: str
    gone_before: str
    dirty: str
    map: str

    @staticmethod
    @lru_cache(maxsize=KEPT_MAX)
    def of(event_id: str) -> "Keys":
        start = f"inventory:{{{event_id}}}:"
        return Keys(*(start + name for name in PARTS))

    def parts(self, seated: Iterable[str]) -> list[str]:
        """The keys that must exist beside `meta`; `seated` are the sections with a map."""
        kept = [self.counts, self.holds, self.deadlines, self.usage, self.revoked, self.gone, self.gone_before]
        return [*kept, *(self.map + s for s in seated)]
