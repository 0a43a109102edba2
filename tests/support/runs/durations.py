"""Notes how long each test of a whole run took, and prints the slowest of the last one: `make slowest`.

A test's processor seconds are those of its own process: servers and programs that it starts do not count. Its set-up
counts, so the first test that asks for a fixture of the session pays for it.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / ".pytest_cache" / "durations.jsonl"
SHOWN = 100
PROPERTY = "duration"
WITHOUT_ENGINES = "no engine"
MARKS_OF_ALL = "not proof"  # `-m` in pyproject.toml
TIERS = {  # by mark; the first that a test has
    "proof": "proof", "browser": "browser", "journey": "whole suite", "postgres": "engines", "redis": "engines",
}  # fmt: skip
noted: list[dict[str, Any]] = []
STARTED = pytest.StashKey[tuple[float, float]]()


def tier_of(item: pytest.Item) -> str:
    return next((tier for mark, tier in TIERS.items() if item.get_closest_marker(mark)), WITHOUT_ENGINES)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    item.stash[STARTED] = (time.perf_counter(), time.process_time())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The last report of a test carries its duration to the process that writes the file."""
    if call.when == "teardown":
        wall, processor = item.stash[STARTED]
        duration = {
            "test": item.nodeid, "wall_s": round(time.perf_counter() - wall, 4),
            "processor_s": round(time.process_time() - processor, 3),
            "worker": os.environ.get("PYTEST_XDIST_WORKER", "main"), "tier": tier_of(item),
        }  # fmt: skip
        item.user_properties.append((PROPERTY, json.dumps(duration)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        noted.extend(json.loads(str(value)) for name, value in report.user_properties if name == PROPERTY)


def is_whole(config: pytest.Config) -> bool:
    """No test was chosen by path, mark, name or an earlier failure."""
    option = config.option
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and option.markexpr == MARKS_OF_ALL
    return whole and not (option.keyword or option.lf)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and is_whole(session.config):
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text("".join(f"{json.dumps(one)}\n" for one in noted))


def _print_sums(title: str, durations: list[dict[str, Any]], keys: list[str]) -> None:
    wall_s, processor, tests = Counter[str](), Counter[str](), Counter(keys)
    for key, one in zip(keys, durations, strict=True):
        wall_s[key] += one["wall_s"]
        processor[key] += one["processor_s"]
    print(f"\n{'wall s':>8} {'proc. s':>8} {'tests':>6}  {title}")  # noqa: T201
    for key, seconds in wall_s.most_common():
        print(f"{seconds:8.1f} {processor[key]:8.1f} {tests[key]:6}  {key}")  # noqa: T201


def main() -> int:
    if not FILE.exists():
        print("There is no whole run yet: `make test`.")  # noqa: T201
        return 1
    durations = [json.loads(line) for line in FILE.read_text().splitlines()]
    durations.sort(key=lambda one: -one["wall_s"])
    print(f"{'wall s':>8} {'proc. s':>8} {'worker':>6}  slowest tests")  # noqa: T201
    for one in durations[:SHOWN]:
        print(f"{one['wall_s']:8.2f} {one['processor_s']:8.2f} {one['worker']:>6}  {one['test']}")  # noqa: T201
    _print_sums("file", durations, [one["test"].partition("::")[0] for one in durations])
    _print_sums("folder", durations, ["/".join(one["test"].partition("::")[0].split("/")[:2]) for one in durations])
    _print_sums("worker", durations, [one["worker"] for one in durations])
    _print_sums("tier", durations, [one["tier"] for one in durations])
    return 0


if __name__ == "__main__":
    sys.exit(main())
