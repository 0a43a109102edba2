"""What can go wrong at the door and nowhere else."""

from shared.web.problems import Problem


class LineFull(Problem):
    """The line of this event is full."""

    status = 429
    retry_after_default_s = 30


class SignInNeeded(Problem):
    """Only signed-in fans may join this line; sign in and send your token."""

    status = 401


class ReturnUrlNotAllowed(Problem):
    """The room's gate sends nobody back to this address."""

    status = 422


class CodeUnknown(Problem):
    """This code opens no lane here. You may join the general line without one."""

    status = 403


class CodeUsedUp(Problem):
    """This code was used as often as it may be. You may join the general line without one."""

    status = 409


class UnknownLane(Problem):
    """The line has no such lane."""

    status = 422


class ProofOfWorkNeeded(Problem):
    """This line asks a browser to work a moment before it joins: solve the challenge and join again."""

    status = 428
