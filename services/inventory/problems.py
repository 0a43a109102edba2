"""Problems that only inventory raises; each docstring is the problem's text."""

from shared.errors.problems import Problem


class SeatsTaken(Problem, status=409):
    """At least one of these seats was taken. Choose other seats."""


class NoAdjacentSeats(Problem, status=409):
    """There are enough seats, but not this many next to each other. Allow a split, or choose fewer."""


class SingleSeat(Problem, status=409):
    """These seats would leave one alone. Choose others."""


class NoAccessiblePlaces(Problem, status=409):
    """There are not this many wheelchair places together, each with a place next to it for who comes along."""

    @classmethod
    def left(cls, wheelchair: int, companions: int) -> "NoAccessiblePlaces":
        """With how many places are left in the sections that were searched."""
        places = f"{_number(wheelchair, 'wheelchair place')} and {_number(companions, 'companion place')}"
        detail = f"There are not so many wheelchair and companion places together. Left are {places}."
        return cls(detail, wheelchair=wheelchair, companions=companions)


def _number(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


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


class ReservedSeats(Problem, status=409):
    """Some of these seats are only for fans with a code, or of another line. Nothing was reserved."""


class NotSameTickets(Problem, status=409):
    """These are not the tickets of this reservation. Nothing was changed."""
