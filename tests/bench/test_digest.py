"""Records are tied to the code they measured."""

from pathlib import Path

import orjson
import pytest

from bench.__main__ import BENCH_DIR, MEASUREMENTS, parse_options
from bench.record import results
from bench.record.digest import CODE, EVERYWHERE, ROOT, digest
from bench.record.machine import busy_cores


def test_every_measurement_says_which_code_it_depends_on() -> None:
    assert {*MEASUREMENTS, "night"} == CODE.keys()
    assert all((ROOT / place).exists() for places in (*CODE.values(), EVERYWHERE) for place in places)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The folders that the joins depend on, a file in each."""
    for place in (*CODE["joins"], *EVERYWHERE):
        path = tmp_path / place
        file = path if path.suffix else path / "one.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    return tmp_path


@pytest.mark.parametrize("name", ["services/queue/one.py", "services/queue/new.sql", "shared/lua/new.lua"])
def test_a_digest_follows_the_code(code: Path, name: str) -> None:
    before = digest("joins", code)
    (code / name).parent.mkdir(exist_ok=True)
    (code / name).write_text("2")
    assert digest("joins", code) != before


def test_a_digest_ignores_other_code(code: Path) -> None:
    before = digest("joins", code)
    (code / "services/orders").mkdir()
    (code / "services/orders/one.py").write_text("2")
    (code / "services/queue/notes.md").write_text("2")
    assert digest("joins", code) == before


def test_a_record_of_other_code_is_stale(tmp_path: Path) -> None:
    for name, of in (("joins", digest("joins")), ("status", "other")):
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps({"date": "2030-01-01", "code": of}))
    assert results.stale(tmp_path) == {"status": "2030-01-01"}


async def test_idle_time_is_not_busy() -> None:
    assert 0 <= await busy_cores(0.05) <= 1024


def test_stale_and_anyway_are_options() -> None:
    assert parse_options(["--stale"]).stale
    assert parse_options(["joins", "--anyway"]).anyway


@pytest.mark.proof
def test_no_record_is_older_than_the_code_it_measured() -> None:
    """Red until `make bench` has measured again what has changed since."""
    assert results.stale(BENCH_DIR / "results") == {}
