"""Problems that only the notifier raises."""

from services.notifier.metrics import REJECTED
from shared.errors.problems import Problem


class MalformedFilter(Problem, status=422):
    """The filter must name 1 to 50 sections of the event, separated by commas; `seats` may be `*` for all."""


class StreamRejected(Exception):
    """No new stream now; the listener may retry later."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        REJECTED.labels(reason).inc()
