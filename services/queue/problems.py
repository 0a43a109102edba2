"""What only the queue refuses."""

from shared.web.problems import Problem


class RoomStateConflict(Problem):
    """The room cannot do that in its present state."""

    status = 409


class LaneInUse(Problem):
    """A lane that has places cannot be taken away."""

    status = 409


class LaneTakesNoCodes(Problem):
    """There is no such lane, or it does not ask for a code."""

    status = 422


class TooManyCodes(Problem):
    """This event has as many codes as an event may have."""

    status = 409
