"""`onsale check-history`: a table of what was compared, one line for a broken promise, exit codes.

A made-up sale that keeps its promises is clean, and everything in it was compared.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onsale.cli.app import app
from onsale.data_dir import Engines, write_engines_file
from onsale.errors import OperatorError
from onsale.history import command
from onsale.history.checker import BadHistory, lines
from onsale.history.checks.books import chunks
from tests.onsale.history.doctored import Sale, of_place
from tests.support.engines.engines import run_in_thread


@pytest.fixture
def ran(sale: Sale, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> "Ran":
    """The command on the sale's history, with the addresses in a data directory."""
    for name in ("ONSALE_POSTGRES_URL", "QUEUE_POSTGRES_URL", "INVENTORY_POSTGRES_URL", "ORDERS_POSTGRES_URL"):
        monkeypatch.delenv(name, raising=False)
    write_engines_file(tmp_path, Engines(postgres_url, "redis://none"), "http://provider")
    monkeypatch.setattr(command, "run_async", run_in_thread)
    return Ran(sale, tmp_path)


class Ran:
    """Exit code and output of the command."""

    def __init__(self, sale: Sale, folder: Path) -> None:
        self._sale, self._folder = sale, folder

    def __call__(self, *options: str) -> tuple[int, str]:
        path = self._sale.write()
        arguments = ["check-history", str(path), "--data-dir", str(self._folder), *options]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
        return result.exit_code, result.output


async def test_a_kept_promise_is_a_row(ran: Ran) -> None:
    code, output = ran()
    assert code == 0
    assert "orders are kept" in output
    assert "broken:" not in output


async def test_a_broken_promise_is_a_line_with_its_proof(ran: Ran, sale: Sale) -> None:
    sale.add(of_place("position", 600, 3, position_in_queue=2))
    code, output = ran()
    assert code == 1
    assert "broken: place 3 of lane 0, epoch 1, of arena went back from position 1 to 2" in output
    assert f"({sale.path.name}:12, {len(sale.lines)})" in output
    assert ran("--event-id", "another")[0] == 0


async def test_what_cannot_be_read_is_said_in_one_line(ran: Ran, sale: Sale, tmp_path: Path) -> None:
    sale.lines = [{"at_ms": 1}]
    with pytest.raises(OperatorError, match="Line 1 of"):
        ran()
    (tmp_path / "engines.json").unlink()
    with pytest.raises(OperatorError, match="ONSALE_POSTGRES_URL"):
        ran()


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
