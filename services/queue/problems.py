"""Problems that only the queue answers."""

from shared.errors.problems import Problem


class RoomStateConflict(Problem, status=409):
    """The room cannot do that in its present state."""


class LaneInUse(Problem, status=409):
    """A lane that has places cannot be removed."""
