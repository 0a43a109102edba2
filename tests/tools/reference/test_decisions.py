"""Every decision has the form of MADR, and the index has a row for each."""

import re
from pathlib import Path

import pytest

from tools.reference import decisions

RECORDS = sorted(decisions.FOLDER.glob("0*.md"))
STATUS = re.compile(r"proposed|accepted(, superseded in part by \d{4}(, \d{4})*)?|superseded by \d{4}")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_a_record_has_status_date_and_the_four_headings(path: Path) -> None:
    record = decisions.Record.read(path)
    assert record.number == path.name[:4]
    assert f"# {record.number} · {record.title}\n" in path.read_text().splitlines(keepends=True)
    assert STATUS.fullmatch(record.status), record.status
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", record.date)
    text = path.read_text()
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == decisions.HEADINGS
    options = text.split("## Considered options\n")[1].split("\n## ")[0]
    assert options.strip().startswith("- **Chosen:** ")
    assert len(re.findall(r"^- ", options, re.M)) >= 2, "something it was chosen over"


def test_a_record_that_supersedes_another_is_later() -> None:
    for record in decisions.records():
        for later in re.findall(r"\d{4}", record.status):
            assert later > record.number
            assert list(decisions.FOLDER.glob(f"{later}-*.md"))


def test_no_two_records_have_one_number() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len(numbers) == len(set(numbers))
