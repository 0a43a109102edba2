"""The keys of the gate. All keys of an event share one hash tag, so that one script may touch them all.

A part that is lost alone, by eviction or by hand, must never read as "nothing": nothing free, nothing held, nobody
limited, no pass ended. Therefore every part but `dirty` exists from the moment a filling begins, kept alive by a mark
of the filling's epoch, and no script makes one anew. Scripts close the gate when a part they need is not there, the
watcher looks for all of them, and a gate that misses one is filled again as if it had lost everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass

EPOCH = b"epoch"  # the mark: a field of a hash, a member of a sorted set that is never due


@dataclass(frozen=True, slots=True)
class Keys:
    """`map` is a prefix: a section's map is `map + section_id`. A score in `deadlines` already includes the grace.

    `dirty` comes and goes with every frame; when it is lost, the next frame that is repeated says what it would have.
    """

    meta: str
    counts: str
    holds: str
    deadlines: str
    usage: str
    revoked: str
    dirty: str
    map: str

    @classmethod
    def of(cls, event_id: str) -> "Keys":
        start = f"inventory:{{{event_id}}}:"
        names = ("meta", "counts", "holds", "deadlines", "usage", "revoked", "dirty", "map:")
        return cls(*(start + name for name in names))

    def only(self, *names: str) -> dict[str, str]:
        """The keys one script takes, by name."""
        return {name: getattr(self, name) for name in names}

    def parts(self, seated: Iterable[str]) -> list[str]:
        """What must be there beside the hash of the gate itself: `seated` are the sections that have maps."""
        return [self.counts, self.holds, self.deadlines, self.usage, self.revoked, *(self.map + s for s in seated)]
