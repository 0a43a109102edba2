"""How long each line has been out of order, so that letting everybody pass meanwhile has an end.

An outage is over when the line was well for as long as the box is; flapping does not open the box anew.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

OUTAGES_MAX = 10_000


@dataclass
class _Spell:
    began_s: float
    well_since_s: float | None = None


class FailOpenWindow:
    """The outages of this process's lines."""

    def __init__(self) -> None:
        self._spells: OrderedDict[str, _Spell] = OrderedDict()

    def lasts_s(self, event_id: str, *, well: bool, box_s: float) -> float | None:
        """How long this line has been out of order, or nothing if it is well."""
        now_s, spell = time.monotonic(), self._spells.get(event_id)
        if well:
            self._mend(event_id, spell, now_s, box_s)
            return None
        if spell is None:
            spell = self._spells[event_id] = _Spell(now_s)
            if len(self._spells) > OUTAGES_MAX:
                self._spells.popitem(last=False)
        spell.well_since_s = None
        return now_s - spell.began_s

    def _mend(self, event_id: str, spell: _Spell | None, now_s: float, box_s: float) -> None:
        if spell is None:
            return
        if spell.well_since_s is None:
            spell.well_since_s = now_s
        elif now_s - spell.well_since_s >= box_s:
            del self._spells[event_id]
