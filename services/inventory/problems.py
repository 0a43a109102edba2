"""What only inventory can refuse."""

from shared.web.problems import Problem


class SeatsTaken(Problem):
    """Somebody else has at least one of these seats."""

    status = 409


class NoAdjacentSeats(Problem):
    """There are enough seats, but not so many next to each other."""

    status = 409


class UnknownSection(Problem):
    """This event has no such section, or it is not of the kind you asked for."""

    status = 404


class UnknownSeat(Problem):
    """This event has no such seat."""

    status = 404


class NotHeld(Problem):
    """Some of these places are not, or no longer, in this reservation. Nothing was given back."""

    status = 409


class AlreadyExtended(Problem):
    """A reservation can be extended once."""

    status = 409


class AlreadyBought(Problem):
    """The reservation was bought; it can only be given back by a refund."""

    status = 409


class StockConflict(Problem):
    """This change would take away places that are held or sold."""

    status = 409


class UnknownAllotment(Problem):
    """This event has no such allotment."""

    status = 404
