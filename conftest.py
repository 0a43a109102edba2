"""Plugins with the fixtures of all tests, the marks that follow from fixtures, and the scheduling of tests."""

import asyncio
import gc
import logging
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from xdist.scheduler import LoadScopeScheduling

from onsale.local import ports
from shared.concurrency import background
from shared.runtime.logging import write_to_standard_library
from shared.runtime.metrics import LABEL_VALUES
from tests.support.programs import needs, pytest_terminal_summary  # noqa: F401 - a hook

pytest_plugins = (
    "tests.support.engines.engines",
    "tests.support.running.suite",
    "tests.support.engines.engine_groups",
    "tests.support.browser",
    "tests.support.runs.seeds",
    "tests.support.runs.durations",
    "tests.support.runs.waiting",
)
PAGES = "tests/browser/pages/"  # in one worker, so that there is one Chromium
SUITE, SUITE_TIMEOUT_S = "suite", 300  # a test may start the suite first, on a busy machine
WHOLE_SUITE = (  # these use the suite; all in one worker, so that there is one
    "tests/journeys/", "tests/browser/buying/", "tests/browser/console/test_a_sale.py",
    "tests/onsale/cli/test_command_line.py",
    "features/webhooks/tests/test_webhook_commands.py", "tests/structure/test_own_package.py",
    "tests/test_without_features.py", "proof/",
)  # fmt: skip
PROOF = Path(__file__).parent / "proof"


def pytest_configure(config: pytest.Config) -> None:
    """Each worker chooses among ports of its own: two that probe at the same time would find the same one free."""
    if (worker := getattr(config, "workerinput", None)) is not None:
        ports.SERVERS = ports.SERVERS[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]


class Wakes(defaultdict[str, set[asyncio.Event]]):
    """The loops of each service, among them one that records each wake."""

    def __init__(self) -> None:
        super().__init__()
        self.services: list[str] = []

    def __missing__(self, service: str) -> set[asyncio.Event]:
        recorder = asyncio.Event()
        setattr(recorder, "set", partial(self.services.append, service))  # noqa: B010 - a method
        self[service] = {recorder}
        return self[service]


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The services whose loops were woken, each time."""
    monkeypatch.setattr(background, "_wakes", wakes := Wakes())
    return wakes.services


MARKS = {  # by the fixtures that a test asks for
    "browser": {"playwright", "chromium"}, "redis": {"redis_url", "cluster", "sentinel_group"},
    "postgres": {"postgres_url", "database"}, "journey": {"suite"},
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for mark, of in MARKS.items():
            if of & fixtures:
                item.add_marker(mark)
        if item.get_closest_marker("browser"):
            item.add_marker(needs("chromium"))
        if PROOF in item.path.parents:
            item.add_marker("proof")
        if item.get_closest_marker("journey"):
            assert item.nodeid.startswith(WHOLE_SUITE), f"name {item.nodeid} in WHOLE_SUITE"
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SUITE_TIMEOUT_S))


class OneSuiteAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Schedules by module; modules with a whole suite go to one worker, as two suites on two cores miss deadlines. What
    takes longest begins first, so that the workers end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PAGES):
            return PAGES
        return SUITE if nodeid.startswith(WHOLE_SUITE) else nodeid.split("::", maxsplit=1)[0]

    def _assign_work_unit(self, node: object) -> None:
        if (scope := next((scope for scope in (SUITE, PAGES) if scope in self.workqueue), None)) is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneSuiteAtATime:
    return OneSuiteAtATime(config, log)


@pytest.fixture(autouse=True)
def logs_go_to_the_standard_library() -> Iterator[None]:
    """A command that a test runs in this process may have set up the log lines of a service, and a library may have
    switched off the loggers that there were.
    """
    logging.disable(logging.NOTSET)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False
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


gc.disable()  # until all is collected: a tenth of the time that it takes


def pytest_collection_finish() -> None:
    """What the imports made stays: the collector need not look at a million objects again after each test."""
    gc.freeze()
    gc.enable()
