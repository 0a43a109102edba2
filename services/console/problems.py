"""Problems that only the console answers."""

from shared.web.problems import Problem


class UnknownApproval(Problem, status=404):
    """There is no such request for approval, or it has expired or was withdrawn."""


class ApprovalDecided(Problem, status=409):
    """Another operator has decided this meanwhile."""


class TooManyApprovals(Problem, status=409):
    """Too many requests for approval wait already. Decide or withdraw some."""
