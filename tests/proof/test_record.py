"""The record of what was tried: runs add up, in any order, and the page shows the sums."""

from pathlib import Path

import pytest

from proof import record
from proof.drills import recoveries
from proof.part import Result, Trial
from proof.record import Record, Tally

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

KILLED, FLUSHED = "queue killed", "Valkey flushed"
FIRST = Record.of(
    Result({"trials": 2}, [Trial(KILLED, True, 3.5, 0), Trial(KILLED, False, 1.0, 2), Trial(FLUSHED, True, 0.2, 0)]),
    1800, date="2026-11-20",
)  # fmt: skip
SECOND = Record.of(Result({"trials": 1}, [Trial(KILLED, True, 9.0, 0)]), 3600, date="2026-11-25")


def test_two_runs_add_up_in_any_order() -> None:
    both = FIRST + SECOND
    assert both == SECOND + FIRST
    assert (both.hours, both.counts, both.since, both.until) == (1.5, {"trials": 3}, "2026-11-20", "2026-11-25")
    assert both.faults[KILLED] == Tally(KILLED, 3, 2, 9.0, 2, "2026-11-20")
    assert Record() + FIRST == FIRST + Record() == FIRST


def test_a_saved_record_is_read_as_it_was(tmp_path: Path) -> None:
    (FIRST + SECOND).write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == FIRST + SECOND
    assert Record.read(tmp_path / "none.json") == Record()


def test_saving_adds_to_the_record_or_starts_over_and_writes_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, page = tmp_path / "record.json", tmp_path / "recovery.md"
    monkeypatch.setattr(recoveries, "PAGE", page)
    monkeypatch.setattr(record, "SAVED", saved)
    result = Result({"trials": 1}, [Trial(KILLED, True, 2.0, 0)])
    recoveries.keep_tried(result, 3600)
    recoveries.keep_tried(result, 3600)
    assert f"| {KILLED} | 2 | 2 | 2 s | 0 |" in page.read_text()
    assert "2.0 hours: 2 trials." in page.read_text()
    assert recoveries.table(recoveries.kept()) in page.read_text()
    recoveries.keep_tried(result, 3600, start_over=True)
    assert f"| {KILLED} | 1 | 1 | 2 s | 0 |" in page.read_text()
