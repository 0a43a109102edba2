"""A plugin of pytest: writes what was collected, with its marks, and how each test ended, as JSON into the file that
`ONSALE_GUARD_REPORT` names.

A test has noticed something if an assertion failed, a constraint of the database refused what a guard should have
refused before, or its own code could not go on with what it got. An exception from deeper down may as well mean that
the changed code does not run at all.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

NOTICED = {
    "AssertionError", "Failed",  # pytest's own, as of a `raises` in which nothing was raised
    "IntegrityError", "CheckViolationError", "UniqueViolationError",  # of the database, the guard behind it
}  # fmt: skip
NOTHING_RUNS = {
    "NoSuchGuard",  # a test that takes the same guard out itself did not find it
    "ConnectError", "ConnectionRefusedError",  # perhaps the changed service does not start
}  # fmt: skip
OF_TESTS, INSTALLED = {"tests", "proof"}, ".venv"
marks: dict[str, list[str]] = {}
passed: list[str] = []
red: list[str] = []
broken: list[tuple[str, str]] = []


def _names(raised: BaseException) -> Iterator[str]:
    """The name of the exception; of a group, those in it."""
    if isinstance(raised, BaseExceptionGroup):
        for each in raised.exceptions:
            yield from _names(each)
    else:
        yield type(raised).__name__


def _is_own(raised: pytest.ExceptionInfo[BaseException], root: Path) -> bool:
    """Whether a test, not the product, made the call that failed."""
    paths = [Path(str(entry.path)) for entry in raised.traceback]
    ours = [path.relative_to(root).parts for path in paths if path.is_relative_to(root)]
    return next((bool(OF_TESTS & {*folders}) for folders in reversed(ours) if folders[0] != INSTALLED), False)


def _without_parameters(node: str) -> str:
    return node.partition("[")[0]


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        marks[_without_parameters(item.nodeid)] = [mark.name for mark in item.iter_markers()]
    _write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    name = _without_parameters(item.nodeid)
    if report.failed:
        assert call.excinfo is not None
        raised = set(_names(call.excinfo.value))
        is_noticed = raised & NOTICED or (_is_own(call.excinfo, item.config.rootpath) and not raised & NOTHING_RUNS)
        if call.when != "setup" and is_noticed:
            red.append(name)
        else:
            broken.append((name, f"{', '.join(sorted(raised))} in {call.when}"))
    elif report.passed and call.when == "call":
        passed.append(name)
    _write()
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        broken.append((_without_parameters(report.nodeid), "it cannot be imported"))
        _write()


def _write() -> None:
    """After each test, as a session that hangs later is ended."""
    written = json.dumps({"marks": marks, "passed": passed, "red": red, "broken": broken})
    Path(os.environ["ONSALE_GUARD_REPORT"]).write_text(written)
