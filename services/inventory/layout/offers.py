"""Which places best available offers at once, which only when no others are left, and which never.

Wheelchair and companion places are for who asks for them, until they are released. Places that only some fans may buy
are never offered to others, and first to them; who they are, a feature says. A general-admission section is offered or
not as a whole; those of its places that only some may buy are a pool, which is counted by itself.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from cachetools import LRUCache

from services.inventory.layout.price_types import ACCESSIBLE, Fan
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.event_parts.traits import Run, joined

LATE: tuple[Trait, ...] = ("restricted_view", "easy_access")
WHOLE: Run = (0, 0)  # of a GA section
RIGHTS_MAX = 64  # kept at a time

Places = Mapping[str, Sequence[Run]]  # by section the runs of its seats; of a GA section `WHOLE`
Round = Mapping[str, str]  # by section the places that are not offered, as the script reads them: `0-4,9-9`
EVERYTHING: Sequence[Round] = ({},)


class Exclusive(Protocol):
    """Places that only some fans may buy: seats, and pools by their section. No two have the same place."""

    @property
    def name(self) -> str: ...

    @property
    def places(self) -> Places: ...

    @property
    def pools(self) -> Mapping[str, str]: ...

    def is_open_to(self, fan: Fan) -> bool: ...


@runtime_checkable
class HasExclusive(Protocol):
    """A feature's part of a layout (`Shown`) with such places. They stay the same as long as the layout."""

    @property
    def exclusive(self) -> Sequence[Exclusive]: ...


class Offers:
    """What best available offers of one layout, whose places have these traits by section; `lasts` has the last
    position of each section. What one right sees is made once.
    """

    def __init__(
        self,
        traits: Mapping[str, Mapping[Trait, Sequence[Run]]],
        exclusive: Sequence[Exclusive],
        lasts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.exclusive, self._lasts = exclusive, lasts
        self._traits = {section_id: own for section_id, own in traits.items() if own}
        self.wheelchair_places, self.companion_places = (_round([self._with([trait])]) for trait in ACCESSIBLE)
        self._rounds: LRUCache[tuple[bool | None, frozenset[int]], Sequence[Round]] = LRUCache(RIGHTS_MAX)

    def rounds(self, fan: Fan, *, released: bool) -> Sequence[Round]:
        """What each round leaves out for this fan. Who may buy exclusive places is offered them first, and them alone.
        Then nothing late is offered, and in a last round, if there is anything late, that as well.
        """
        return self._kept(fan, released)

    def accessible(self, fan: Fan) -> Sequence[Round]:
        """The same for who asks for wheelchair places: one round, without what only others may buy."""
        return self._kept(fan, None) if self.exclusive else EVERYTHING

    def _kept(self, fan: Fan, released: bool | None) -> Sequence[Round]:
        closed = frozenset(n for n, each in enumerate(self.exclusive) if not each.is_open_to(fan))
        found = self._rounds.get((released, closed))
        if found is None:
            found = self._rounds[released, closed] = self._made(released, closed)
        return found

    def _made(self, released: bool | None, closed: frozenset[int]) -> Sequence[Round]:
        never = [self.exclusive[n].places for n in sorted(closed)]
        if released is None:
            return [_round(never)]
        if not released:
            never.append(self._with(ACCESSIBLE))
        late = self._with((*LATE, *ACCESSIBLE) if released else LATE)
        last = _round(never)
        first = _round([*never, late])
        rounds = [last] if first == last else [first, last]
        if mine := [each.places for n, each in enumerate(self.exclusive) if n not in closed]:
            mine_alone = _round([*never, late, self._all_but(mine)])
            return rounds if mine_alone == rounds[0] else [mine_alone, *rounds]
        return rounds

    def _all_but(self, kept: Sequence[Places]) -> Places:
        """All places but these."""
        own = {section_id: [run for places in kept for run in places.get(section_id, ())] for section_id in self._lasts}
        return {section_id: outside(own[section_id], last) for section_id, last in self._lasts.items()}

    def _with(self, traits: Sequence[Trait]) -> Places:
        """The places that have one of these traits."""
        return {
            section_id: [run for trait in traits if trait in own for run in own[trait] or [WHOLE]]
            for section_id, own in self._traits.items()
        }


def outside(runs: Sequence[Run], last: int) -> list[Run]:
    """The positions up to `last` that are in none of these runs."""
    found, at = list[Run](), 0
    for first, end in joined(runs):
        if at < first:
            found.append((at, first - 1))
        at = end + 1
    return [*found, (at, last)] if at <= last else found


def _round(left_out: Sequence[Places]) -> Round:
    runs: dict[str, list[Run]] = {}
    for places in left_out:
        for section_id, own in places.items():
            runs.setdefault(section_id, []).extend(own)
    return {section_id: _as_text(own) for section_id, own in runs.items() if own}


def _as_text(runs: Sequence[Run]) -> str:
    return ",".join(f"{first}-{last}" for first, last in joined(runs))
