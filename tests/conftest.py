"""What every test can ask for, and the marks that follow from asking."""

import pytest

pytest_plugins = (
    "tests.support.engines.engines",
    "tests.support.running.suite",
    "tests.support.engines.engine_groups",
    "tests.support.seeds",
)


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
