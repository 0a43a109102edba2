"""Problems that only the notifier raises."""

from shared.web.problems import Problem


class MalformedFilter(Problem, status=422):
    """The filter must name 1 to 50 sections of the event, separated by commas; `seats` may be `*` for all."""
