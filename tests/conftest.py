"""What every test can ask for, and the marks that follow from asking."""

import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = (
    "tests.support.engines.engines",
    "tests.support.running.suite",
    "tests.support.engines.engine_groups",
    "tests.support.seeds",
)


WHOLE_SUITE_FOLDERS = ("tests/journeys/", "tests/browser/", "tests/drills/")
WHOLE_SUITE_TIMEOUT_S = 300  # for a test that may have to start the suite first, on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked_for = getattr(item, "fixturenames", ())
        if {"redis_url", "cluster", "watched"} & set(asked_for):
            item.add_marker("redis")
        if "postgres_url" in asked_for:
            item.add_marker("postgres")
        if "suite" in asked_for:
            item.add_marker("journey")
        starts_a_suite = item.get_closest_marker("journey") or item.get_closest_marker("drill")
        if starts_a_suite and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WHOLE_SUITE_TIMEOUT_S))


class OneSuiteAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out modules; all that run five services go to one process, as two suites on two cores miss deadlines."""

    def _split_scope(self, nodeid: str) -> str:
        return "suite" if nodeid.startswith(WHOLE_SUITE_FOLDERS) else nodeid.split("::", maxsplit=1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneSuiteAtATime:
    return OneSuiteAtATime(config, log)
