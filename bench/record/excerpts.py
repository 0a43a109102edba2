"""Tables of documents that are part of a record's table. Each is named here once, is written when a record is saved,
and is compared by a test: so one claim has one figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.measurement import Claim
from bench.record import report, results
from bench.record.page_blocks import Block

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Excerpt:
    """Rows of the record's table, by how they begin; all of them if none is named. Columns without a figure in any of
    them are left out.
    """

    page: str
    name: str
    record: str
    rows: tuple[str, ...] = ("",)

    @property
    def block(self) -> Block:
        return Block(self.name, f"`make bench ARGS={self.record}`")

    def content(self, folder: Path) -> str:
        """The table, and of when it is. Raises `LookupError` if the record has no such row."""
        result = results.read(folder / f"{self.record}.json")
        head, rule, *rows = [line for line in result.section.splitlines() if line.startswith("|")]
        kept = [row for row in rows if row.startswith(tuple(f"| {begin}" for begin in self.rows))]
        if not kept:
            raise LookupError(f"{self.record} has no row that begins with {' or '.join(self.rows)}")
        shown = _without_empty_columns([head, rule, *kept])
        return "\n".join([*shown, "", f"Measured {result.date} (`python -m bench {self.record}`)."])


def _without_empty_columns(lines: Sequence[str]) -> list[str]:
    """The same table; its head and rule are the first two lines."""
    table = [line.strip("|").split("|") for line in lines]
    filled = [n for n in range(len(table[0])) if any(row[n].strip() for row in table[2:])]
    return [f"|{'|'.join(row[n] for n in filled)}|" for row in table]


@dataclass(frozen=True)
class Claims:
    """Claims of several records, each by its record and how it begins, as one table."""

    page: str
    name: str
    wanted: tuple[tuple[str, str], ...]

    @property
    def block(self) -> Block:
        return Block(self.name, "`make bench`")

    def content(self, folder: Path) -> str:
        """The table, and of when it is. Raises `LookupError` if a record has no such claim."""
        found, dates = list[Claim](), set[str]()
        for record, begin in self.wanted:
            result = results.read(folder / f"{record}.json")
            claims = [claim for claim in result.claims if claim.what.startswith(begin)]
            if not claims:
                raise LookupError(f"{record} has no claim that begins with {begin}")
            found += claims
            dates.add(result.date)
        measured = f"Measured {min(dates)}" + (f" to {max(dates)}." if len(dates) > 1 else ".")
        return f"{report.summary(found)}\n\n{measured}"


BENCHMARKS, SPEED = "docs/explain/benchmarks.md", "docs/explain/speed.md"
EXCERPTS: tuple[Excerpt | Claims, ...] = (
    Excerpt(BENCHMARKS, "the journey", "journey", ("call |", "process |")),
    Excerpt(BENCHMARKS, "the journey inside", "journey", ("in the suite |",)),
    Excerpt(BENCHMARKS, "designs of a line", "designs", ("1,000,000 |",)),
    Excerpt(
        BENCHMARKS, "designs of stock", "stock", ("as it is | 1 | 1 |", "as it is | 1 | 1,000 |", "as it is | 50 |")
    ),
    Excerpt(BENCHMARKS, "designs of an expiry", "endings"),
    Excerpt(SPEED, "a slow provider", "slow_provider"),
    Claims(SPEED, "whole journeys", (("journey", "J "), ("suites", "P11"), ("replay", "P13"))),
    Excerpt(SPEED, "what an order costs", "order_cost"),
    Excerpt(SPEED, "what listeners cost", "streams", ("15,000 |", "50,000 |")),
    Claims(
        SPEED,
        "single operations",
        (
            ("joins", "P1 "),
            ("status", "P2 "),
            ("reservations", "P4 "),
            ("orders", "P5 "),
            ("checkout", "P0 "),
            ("checkout", "confirmed, p95"),
        ),
    ),
    Excerpt("docs/operate/streams.md", "what a listener costs", "streams", ("15,000 |", "50,000 |")),
    Excerpt("docs/operate/monitoring.md", "what lines cost", "sale_log"),
    Excerpt("docs/use/hall.md", "the map in a browser", "map"),
    Excerpt("docs/use/fan-pages.md", "a page on a phone", "pages"),
)


def write(root: Path = ROOT) -> None:
    """Writes every excerpt into its page."""
    for each in EXCERPTS:
        page = root / each.page
        page.write_text(each.block.replaced(page.read_text(), each.content(root / "bench" / "results")))


if __name__ == "__main__":
    write()
