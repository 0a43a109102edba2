"""Problems that only inventory raises; each docstring is the problem's text."""

from shared.errors.problems import Problem


class SeatsTaken(Problem, status=409):
    """At least one of these seats was taken. Choose other seats."""


class NoAdjacentSeats(Problem, status=409):
    """There are enough seats, but not this many next to each other. Allow a split, or choose fewer."""


class UnknownSection(Problem, status=404):
    """This event has no such section, or it is of another kind."""


class UnknownSeat(Problem, status=404):
    """This event has no such seat."""


class NotHeld(Problem, status=409):
    """Some of these places are not in this reservation (any more). Nothing was released."""


class AlreadyBought(Problem, status=409):
    """The reservation was bought. Request a refund to return it."""


class StockConflict(Problem, status=409):
    """This change would remove places that are held, sold or blocked. Nothing was changed."""


class UnknownPriceType(Problem, status=404):
    """This event has no such price type."""


class PriceTypeRefused(Problem, status=409):
    """A ticket cannot be bought at this price. Nothing was changed."""


class NotSameTickets(Problem, status=409):
    """These are not the tickets of this reservation. Nothing was changed."""
