"""Problems that only the console answers."""

from shared.errors.problems import Problem


class UnknownApproval(Problem, status=404):
    """There is no such request for approval, or it has expired or was withdrawn."""


class ApprovalDecided(Problem, status=409):
    """Another operator has decided this meanwhile."""


class TooManyApprovals(Problem, status=409):
    """Too many requests for approval wait already. Decide or withdraw some."""


class NoRehearsal(Problem, status=404):
    """This event has no rehearsal."""


class RehearsalRuns(Problem, status=409):
    """A rehearsal runs already. Wait for its end, or stop it."""


class PaymentIsReal(Problem, status=409):
    """Nothing was started: with another payment provider than the sandbox a rehearsal could move real money."""


class NoSimulator(Problem, status=503):
    """This console has no simulator: the command `onsale` is not installed beside it."""
