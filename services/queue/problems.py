"""Problems that only the queue answers."""

from shared.errors.problems import Problem


class RoomStateConflict(Problem, status=409):
    """The room cannot do that in its present state."""


class LaneInUse(Problem, status=409):
    """A lane that has places cannot be removed."""


class LaneTakesNoCodes(Problem, status=422):
    """There is no such lane, or it does not require a code."""


class TooManyCodes(Problem, status=409):
    """The event has reached the limit of access codes."""
