"""Recovery times measured by drills: kept in `recoveries.json`, shown in `docs/reference/recovery.md`,
six of them in README. The same page shows what `make proof` has tried at random.

Drills run with `--recoveries`, as by `make drills`, write them; a drill replaces its own rows only. `make proof` with
`--save` adds to what was tried.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench.record import front
from proof.part import Result
from proof.record import Record

HERE = Path(__file__).parent
SAVED_ROWS = HERE / "recoveries.json"
PAGE = HERE.parents[1] / "docs" / "reference" / "recovery.md"
HEAD = """\
# Recovery times

What `make drills` last measured: real processes on one machine, killed, frozen or cut off in the middle of sales. A
drill passes only when every fan's journey ends well and the audit is clean; the time is what fans felt, from the mishap
to the first success after it. "Longest silence" is the longest time for which any fan of the drill asked again and
again and had no good answer; rows of one drill share it. "Lost" is what had been acknowledged and was gone. Drills:
`proof/drills/`.

"""


@dataclass(frozen=True)
class Recovery:
    """A measured recovery: what failed, the seconds until it worked again, what acknowledged data was lost, what is
    promised, the date, and the longest time any fan of the drill had no good answer (`None` if no fan retried).
    """

    what: str
    seconds: float
    lost: str
    promise: str
    date: str
    silence_s: float | None = None

    @staticmethod
    def now(what: str, seconds: float, lost: str, promise: str) -> "Recovery":
        return Recovery(what, round(seconds, 2), lost, promise, datetime.now(UTC).strftime("%Y-%m-%d"))


def keep(rows: list[Recovery]) -> None:
    """Saves these rows in place of older ones of the same name, and writes both tables."""
    known = {row.what: row for row in kept()} | {row.what: row for row in rows}
    ordered = sorted(known.values(), key=lambda row: row.what)
    SAVED_ROWS.write_bytes(orjson.dumps([asdict(row) for row in ordered], option=orjson.OPT_INDENT_2))
    write_page()
    front.write_recovered(by_name(ordered))


def keep_tried(result: Result, seconds: float, *, start_over: bool = False) -> None:
    """Adds what one run of `make proof` has tried to the record, or starts it over, and writes both tables."""
    earlier = Record() if start_over else Record.read()
    (earlier + Record.of(result, seconds)).write()
    write_page()


def write_page() -> None:
    """Writes both tables as they are kept."""
    PAGE.write_text(page())


def page() -> str:
    return HEAD + table(kept()) + Record.read().section()


def kept() -> list[Recovery]:
    return [Recovery(**row) for row in orjson.loads(SAVED_ROWS.read_bytes())] if SAVED_ROWS.exists() else []


def by_name(rows: list[Recovery]) -> dict[str, dict[str, Any]]:
    return {row.what: asdict(row) for row in rows}


def table(rows: list[Recovery]) -> str:
    head = "| What happened | Well again after | Longest silence | Lost | Promised: time / loss at most | Measured |\n"
    return f"{head}|---|---|---|---|---|---|\n" + "".join(
        f"| {row.what} | {row.seconds:g} s | {_seconds(row.silence_s)} | {row.lost} | {row.promise} | {row.date} |\n"
        for row in rows
    )


def _seconds(silence_s: float | None) -> str:
    return f"{silence_s:g} s" if silence_s else "–"
