"""`onsale check-history`: a table of what was compared, one line for a broken promise, exit codes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onsale.cli.app import app
from onsale.data_dir import Engines, write_engines_file
from onsale.errors import OperatorError
from onsale.history import command
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
