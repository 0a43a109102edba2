"""Tables of documents that are part of a record's table. Each is named here once, is written when a record is saved,
and is compared by a test: so one claim has one figure.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.record import results
from bench.record.page_blocks import Block

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Excerpt:
    """Rows of the record's table, by how they begin; all of them if none is named."""

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
        return "\n".join([head, rule, *kept, "", f"Measured {result.date} (`python -m bench {self.record}`)."])


BENCHMARKS = "docs/explain/benchmarks.md"
EXCERPTS = (
    Excerpt(BENCHMARKS, "the journey", "journey", ("call |", "process |")),
    Excerpt(BENCHMARKS, "the journey inside", "journey", ("in the suite |",)),
    Excerpt(BENCHMARKS, "designs of a line", "designs", ("1,000,000 |",)),
    Excerpt(
        BENCHMARKS, "designs of stock", "stock", ("as it is | 1 | 1 |", "as it is | 1 | 1,000 |", "as it is | 50 |")
    ),
    Excerpt(BENCHMARKS, "designs of an expiry", "endings"),
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
