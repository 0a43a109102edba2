"""Problems that only the queue answers."""

from shared.web.problems import Problem


class RoomStateConflict(Problem):
    """The room cannot do that in its present state."""

    status = 409


class LaneInUse(Problem):
    """A lane that has places cannot be removed."""

    status = 409


class LaneTakesNoCodes(Problem):
    """There is no such lane, or it does not require a code."""

    status = 422


class TooManyCodes(Problem):
    """The event has reached the limit of access codes."""

    status = 409
