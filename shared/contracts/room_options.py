"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from shared.inputs import Body


class Entry(Body):
    """Who may join. `signed_in_only`: nobody without a JWT of the seller's identity provider."""

    signed_in_only: bool = False


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    entry: Entry = Entry()
