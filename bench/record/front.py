"""The figures in README: nine that were measured and six recoveries, each taken from its record.

A row names a record and one of its claims; a claim that is gone raises an error instead of leaving an old figure.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from bench.record import results
from bench.record.page_blocks import Block

ROOT = Path(__file__).parents[2]
MEASURED = Block("what was measured", "`make bench` and `make night`")
RECOVERED = Block("what was survived", "`make drills`")
JOURNEY = ("J whole purchases", "J processor time", "J slowest call", "J calls refused")
ROWS = (
    ("checkout", "P0 whole purchases", "best of", "Whole purchases, payment provider 50 ms away"),
    ("joins", "P1 durable joins", "textbook", "Joins of the line, on disk"),
    ("reservations", "P4 durable reservations", "textbook", "Holds over HTTP, on disk, pass checked"),
    ("orders", "P5 idempotent orders", "textbook", "Orders accepted, idempotent, on disk"),
    ("refill", "P7 line of 2,000,000", "sorted set", "A line of 2,000,000 back after `FLUSHALL`"),
    ("memory", "P8 bytes per waiting fan", "sorted set", "Bytes of Valkey for a waiting fan"),
    ("pages", "P14 first contentful paint", "an empty page", "An event's page painted, slow phone, 1.6 Mbit/s"),
)
RECOVERIES = {
    "Valkey killed: a sale": "Valkey killed in the middle of a sale",
    "Redis primary killed (sentinels, valkey; replica in step)": "Valkey's primary killed, Sentinel promotes a replica",
    "PostgreSQL primary killed, synchronous standby promoted after 1 s":
        "PostgreSQL's primary killed, a synchronous standby promoted",
    "one of two orders processes killed behind nginx: the longest wait": "One of two `orders` processes killed, nginx",
    "all five services killed at once: a whole purchase": "All five services killed at once",
    "everything lost but a backup": "Everything lost but a backup",
}  # fmt: skip


def measured(folder: Path) -> str:
    """The table of what was measured, from the records in this folder."""
    night: dict[str, Any] = orjson.loads((folder / "night.json").read_bytes())
    rows = [("The two commands above: 2,000 fans join, wait, hold, pay", _journey(folder), "–", "–"), (
        f"A whole night: {night['fans']:,} fans, {night['tickets']:,} tickets, two cores in all",
        f"{night['seconds']:.0f} s; {night['oversold']} oversold, {night['inversions']} overtaken", "–", "–",
    )]  # fmt: skip
    for record, what, beside, words in ROWS:
        claims = results.read(folder / f"{record}.json").claims
        claim = next(each for each in claims if each.what.startswith(what) and each.beside.startswith(beside))
        rows.append((words, claim.ours, claim.beside, claim.ratio))
    head = "| measured | Onsale | compared with | ratio |\n|---|---:|---:|---:|\n"
    return head + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _journey(folder: Path) -> str:
    """What README's two commands came to: purchases a second, processor time of a fan, the slowest call, refusals."""
    claims = results.read(folder / "journey.json").claims
    per_s, cost, slowest, refused = (
        next(claim for claim in claims if claim.what.startswith(what)) for what in JOURNEY
    )  # fmt: skip
    return f"{per_s.ours}; {cost.ours} a fan; slowest call p95 {slowest.ours}; {refused.ours} calls refused"


def recovered(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of recoveries, from the rows that drills have kept, by what happened."""
    head = "| what happened | well again after | lost |\n|---|---:|---|\n"
    return head + "\n".join(
        f"| {words} | {rows[what]['seconds']:g} s | {rows[what]['lost']} |" for what, words in RECOVERIES.items()
    )


def write_measured() -> None:
    """Writes README's table of what was measured."""
    _write(MEASURED, measured(ROOT / "bench" / "results"))


def write_recovered(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes README's table of recoveries."""
    _write(RECOVERED, recovered(rows))


def _write(block: Block, content: str) -> None:
    readme = ROOT / "README.md"
    readme.write_text(block.replaced(readme.read_text(), content))
