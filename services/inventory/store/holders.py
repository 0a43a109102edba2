"""How holders are counted: each by name, or in groups of those whose names end alike.

A holder's name is a keyed hash in base64, so an event has at most 4,096 groups of about the same size however many buy,
and two stocks that are compared group by group need no list of all buyers.
"""

from dataclasses import dataclass, replace
from typing import Any

WHOLE_NAME, ENDING = 2**31 - 1, 2


def group_of(holder: str) -> str:
    """The name of the holder's group."""
    return holder[-ENDING:]


@dataclass(frozen=True, slots=True)
class Holders:
    """Holders are named by the last `characters` of their names; of all groups, or of some."""

    characters: int
    groups: frozenset[str] | None = None

    def name(self, holder: str) -> str | None:
        """The name by which this holder is counted, or None if the group is not wanted."""
        if self.groups is not None and group_of(holder) not in self.groups:
            return None
        return holder[-self.characters :]

    def columns(self) -> dict[str, Any]:
        """The same for a statement: the parameters `characters`, `ending` and `groups`."""
        groups = None if self.groups is None else sorted(self.groups)
        return {"characters": self.characters, "ending": ENDING, "groups": groups}

    def of(self, groups: frozenset[str]) -> "Holders":
        """The same, of these groups only."""
        return replace(self, groups=groups)


EACH_HOLDER, IN_GROUPS = Holders(WHOLE_NAME), Holders(ENDING)
