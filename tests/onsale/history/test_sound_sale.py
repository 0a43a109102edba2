"""A made-up sale that keeps its promises is clean, and everything in it was compared."""

from pathlib import Path

import pytest

from onsale.history.checker import BadHistory, lines
from onsale.history.checks.books import chunks
from tests.onsale.history.doctored import Sale


async def test_a_sound_sale_is_clean_and_was_compared(sale: Sale) -> None:
    report = await sale.report()
    assert report.violations == []
    assert report.is_clean
    assert report.read["joined"] == 3
    nothing = {check.title for check in report.checked if not check.compared}
    assert nothing == {"a repeated key has the same answer"}


@pytest.mark.parametrize("text", ["", "{}", '{"what": 1, "at_ms": 2}', "[1]", '{"what": "joined"}'])
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(f'{{"what": "note", "at_ms": 1}}\n{text}\n')
    with pytest.raises(BadHistory, match="Line 2"):
        list(lines(path))


def test_what_is_read_in_pieces_may_be_taken_out_meanwhile() -> None:
    waiting = dict.fromkeys(range(5), "sold")
    for some in chunks(waiting, size=2):
        for number in some:
            del waiting[number]
    assert waiting == {}
