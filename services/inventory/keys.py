"""The keys of the gate. All keys of an event share one hash tag, so that one script may touch them all."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """`map` is a prefix: a section's map is `map + section_id`. A score in `deadlines` already includes the grace."""

    gate: str
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
        names = ("gate", "counts", "holds", "deadlines", "usage", "revoked", "dirty", "map:")
        return cls(*(start + name for name in names))

    def only(self, *names: str) -> dict[str, str]:
        """The keys one script takes, by name."""
        return {name: getattr(self, name) for name in names}
