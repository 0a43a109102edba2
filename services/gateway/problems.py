"""Problems that only the gateway raises."""

from shared.errors.problems import Problem


class LineFull(Problem, status=429, retry_after_s=30):
    """The line of this event is full. Try again later."""


class SignInNeeded(Problem, status=401):
    """Only signed-in fans may join this line. Sign in and send your token."""


class UnknownLane(Problem, status=422):
    """This line has no such lane. Join one of the lanes that the public line lists."""


class CookiesNeeded(Problem, status=403):
    """This browser keeps no cookies of ours, and a place in line would be one. Allow cookies, then join again."""
