"""Problems that only the gateway raises."""

from shared.web.problems import Problem


class LineFull(Problem):
    """The line of this event is full. Try again later."""

    status = 429
    retry_after_default_s = 30


class SignInNeeded(Problem):
    """Only signed-in fans may join this line. Sign in and send your token."""

    status = 401


class ReturnUrlNotAllowed(Problem):
    """This return address is not allowed. Add its site to `gate.return_to` of the event file."""

    status = 422


class CodeUnknown(Problem):
    """This code opens no lane of this line. Correct it, or join the general lane without a code."""

    status = 403


class CodeUsedUp(Problem):
    """This code was used as often as it may be. Join the general lane without a code."""

    status = 409


class UnknownLane(Problem):
    """This line has no such lane. Join one of the lanes that the public line lists."""

    status = 422


class ProofOfWorkNeeded(Problem):
    """This line requires a proof of work. Solve the challenge and join again."""

    status = 428
