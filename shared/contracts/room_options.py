"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from shared.contracts.lanes import GENERAL, Lanes
from shared.inputs import Body


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    lanes: Lanes = (GENERAL,)
