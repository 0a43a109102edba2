"""What can go wrong at the door and nowhere else."""

from shared.problems import Problem


class LineFull(Problem):
    """The line of this event is full."""

    status = 429
    retry_after_default_s = 30


class PlaceEnded(Problem):
    """This place in the line has ended; you may join again at its end."""

    status = 410


class CodeUnknown(Problem):
    """This code opens no lane here. You may join the general line without one."""

    status = 403


class CodeUsedUp(Problem):
    """This code was used as often as it may be. You may join the general line without one."""

    status = 409


class TooManyWrongCodes(Problem):
    """Too many wrong codes were tried here. Try yours again in a moment."""

    status = 429
    retry_after_default_s = 1


class UnknownLane(Problem):
    """The line has no such lane."""

    status = 422
