"""Problems that only inventory raises; each docstring is the problem's text."""

from shared.web.problems import Problem


class SeatsTaken(Problem):
    """At least one of these seats was taken. Choose other seats."""

    status = 409


class NoAdjacentSeats(Problem):
    """There are enough seats, but not this many next to each other. Allow a split, or choose fewer."""

    status = 409


class UnknownSection(Problem):
    """This event has no such section, or it is of another kind."""

    status = 404


class UnknownSeat(Problem):
    """This event has no such seat."""

    status = 404


class NotHeld(Problem):
    """Some of these places are not in this reservation (any more). Nothing was released."""

    status = 409


class AlreadyExtended(Problem):
    """This reservation was extended before; it can be extended once."""

    status = 409


class AlreadyBought(Problem):
    """The reservation was bought. Request a refund to return it."""

    status = 409


class StockConflict(Problem):
    """This change would remove places that are held, sold or blocked. Nothing was changed."""

    status = 409


class UnknownAllotment(Problem):
    """This event has no such allotment."""

    status = 404
