"""What every test can ask for, and the marks that follow from asking."""

import pytest

pytest_plugins = (
    "tests.support.engines",
    "tests.support.suite",
    "tests.support.engine_groups",
    "tests.support.seeds",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked_for = getattr(item, "fixturenames", ())
        if {"redis_url", "cluster", "watched"} & set(asked_for):
            item.add_marker("redis")
        if "postgres_url" in asked_for:
            item.add_marker("postgres")
        if "suite" in asked_for:
            item.add_marker("journey")
