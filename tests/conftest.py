"""Plugins with the fixtures of all tests, the marks that follow from fixtures, and the scheduling of tests."""

import gc
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY
from xdist.scheduler import LoadScopeScheduling

from shared.concurrency.background import ACTIVITY
from shared.runtime.logging import write_to_standard_library
from shared.runtime.metrics import LABEL_VALUES
from tests.support.programs import needs, pytest_terminal_summary  # noqa: F401 - a hook

pytest_plugins = (
    "tests.support.engines.engines",
    "tests.support.running.suite",
    "tests.support.engines.engine_groups",
    "tests.support.seeds",
)


# Hours allowed, `make proof` alone: parts killed, crowds, layouts of every page, balancers, costs at 50,000 rows, every
# benchmark at a tiny size, and tests of the test run itself. Arithmetic on records and texts is not among them.
PROOF = (
    "tests/bench/test_core_share.py", "tests/bench/test_load.py",
    "tests/bench/test_measurements.py::test_a_measurement_runs_and_its_checks_hold",
    "tests/browser/pages/", "tests/drills/", "tests/plans/",
    "tests/browser/embedding/",
    "tests/browser/hall/test_the_map_is_live.py", "tests/browser/hall/test_the_map_is_readable.py",
    "tests/browser/plain/test_in_the_middle.py", "tests/browser/plain/test_plain_readability.py",
    "tests/browser/buying/test_order_progress.py", "tests/browser/buying/test_returning_part_of_a_hold.py",
    "tests/browser/waiting/test_a_link_plants_no_identity.py", "tests/browser/waiting/test_connection_and_place.py",
    "tests/browser/waiting/test_lottery.py", "tests/deploy/proof/",
    "tests/journeys/operating/test_chaos.py", "tests/journeys/console/test_parts_away.py",
    "tests/journeys/operating/test_key_rotation.py",
    "tests/journeys/operating/test_restart.py", "tests/journeys/operating/test_several_notifiers.py",
    "tests/journeys/waiting/test_last_tickets.py", "tests/journeys/waiting/test_three_hundred_fans.py",
    "tests/onsale/local/test_database_restart.py", "tests/onsale/local/test_fresh_clone.py",
    "tests/onsale/operations/test_balancers.py", "tests/proof/load/test_short_run.py",
    "tests/proof/upgrades/test_mixed_sale.py",
    "tests/shared/postgres/test_pooler.py", "tests/test_seeds_and_reruns.py",
)  # fmt: skip
NOT_PROOF = (
    "tests/browser/pages/test_delivery.py", "tests/plans/test_statements.py::test_every_statement_has_a_case",
    "tests/journeys/operating/test_chaos.py::test_books_are_compared_charge_by_charge",
    "tests/onsale/local/test_database_restart.py::test_a_server_that_ends_again_and_again_is_given_up",
    "tests/test_seeds_and_reruns.py::test_only_a_few_failures_are_rerun_and_their_names_are_kept",
)  # fmt: skip
WHOLE_SUITE = (  # these use the suite; all in one worker, so that there is one
    "tests/journeys/", "tests/browser/", "tests/drills/", "tests/onsale/cli/test_command_line.py",
    "tests/onsale/cli/test_event_files.py", "tests/onsale/cli/test_event_pictures.py",
    "tests/onsale/cli/test_order_commands.py", "tests/onsale/local/test_database_restart.py",
    "tests/onsale/operations/test_simulate.py", "tests/proof/bad_input/test_slice.py",
    "tests/proof/load/test_short_run.py", "tests/proof/swarm/test_trials.py", "tests/proof/upgrades/test_mixed_sale.py",
)  # fmt: skip
FIRST = (
    "suite", "tests/properties/test_money.py", "tests/properties/test_stock.py", "tests/properties/test_line.py",
    "tests/bench/test_night.py",
)  # fmt: skip
OWN_DATABASE_FOLDERS = ("tests/shared/", "tests/bench/", "tests/properties/", "tests/onsale/")  # they create tables
NO_OWN_DATABASE = ("tests/onsale/history/",)  # these write rows only
WHOLE_SUITE_TIMEOUT_S = 300  # a test may start the suite first, on a busy machine


@pytest.fixture
def silence() -> Iterator[Callable[[], None]]:
    """Lets the time pass in which what has stirred keeps a process awake."""

    def pass_time() -> None:
        ACTIVITY._until_s = 0.0

    ACTIVITY.stir()
    yield pass_time
    ACTIVITY.stir()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker("browser")
            item.add_marker(needs("chromium"))
        if item.nodeid.startswith(PROOF) and not item.nodeid.startswith(NOT_PROOF):
            item.add_marker("proof")
        if item.nodeid.startswith(OWN_DATABASE_FOLDERS) and not item.nodeid.startswith(NO_OWN_DATABASE):
            item.add_marker("own_database")
        fixtures = getattr(item, "fixturenames", ())
        if {"redis_url", "cluster", "sentinel_group"} & set(fixtures):
            item.add_marker("redis")
        if "postgres_url" in fixtures:
            item.add_marker("postgres")
        if "suite" in fixtures:
            assert item.nodeid.startswith(WHOLE_SUITE), f"name {item.nodeid} in WHOLE_SUITE"
            item.add_marker("journey")
        if item.nodeid.startswith(WHOLE_SUITE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WHOLE_SUITE_TIMEOUT_S))


class OneSuiteAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Schedules by module; modules with a whole suite go to one worker, as two suites on two cores miss deadlines. What
    takes longest begins first, so that both workers end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "suite" if nodeid.startswith(WHOLE_SUITE) else nodeid.split("::", maxsplit=1)[0]

    def _assign_work_unit(self, node: object) -> None:
        first = next((scope for scope in FIRST if scope in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneSuiteAtATime:
    return OneSuiteAtATime(config, log)


@pytest.fixture(autouse=True)
def logs_go_to_the_standard_library() -> Iterator[None]:
    """A command that a test runs in this process may have set up the log lines of a service."""
    yield
    write_to_standard_library()


@pytest.fixture(scope="session", autouse=True)
def labels_stay_in_their_closed_sets() -> Iterator[None]:
    """No test of this process made a series that `with_series` does not name: it would begin with its first event."""
    yield
    strays = [
        sample
        for family in REGISTRY.collect()
        for sample in family.samples
        for label, values in LABEL_VALUES.get(family.name, {}).items()
        if sample.labels[label] not in values
    ]
    assert not strays


def pytest_collection_finish() -> None:
    """What the imports made stays: the collector need not look at a million objects again after each test."""
    gc.collect()
    gc.freeze()
