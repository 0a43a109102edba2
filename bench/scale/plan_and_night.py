"""`python -m bench.scale.plan_and_night`: writes what `onsale plan` counts for the measured night, beside its record.

The plan's costs are those of single operations (`onsale/capacity/coefficients.yaml`); the night measured them together.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.night.suite import WINDOW_MS
from bench.record.page_blocks import Block
from bench.scale.coefficients import GUIDE
from bench.scale.simulation import measured_night
from onsale.capacity.calculation import SERVICES, plan_sale
from onsale.capacity.sale import MINUTE_S, PATH, Coefficients, Sale, parse

BLOCK = Block("plan and night", "`make night`, `make bench` and `python -m bench.scale.plan_and_night`")
CALLS = {"join": "join", "status": "status", "claim": "pass", "hold": "hold", "order": "order"}  # of plan, of record


def sale_of(record: Mapping[str, Any]) -> Sale:
    """The night as an operator would describe it to `onsale plan`. The fans come evenly until the sale begins."""
    return Sale(
        record["fans"], record["tickets"], minutes=(record["sold_out_s"] - record["begin_s"]) / MINUTE_S,
        minutes_before=record["begin_s"] / MINUTE_S, first_minute=min(1.0, MINUTE_S / record["begin_s"]),
        seats_per_order=1, buying=1, checkout_minutes=0.1, streams_per_fan=record["streams"] / record["fans"],
        sections=1, seated=False, window_ms=record.get("window_ms", WINDOW_MS), liveness_s=record["liveness_s"],
        polls_per_s=record["polls_per_s"],
    )  # fmt: skip


def processor_s(record: Mapping[str, Any], known: Coefficients) -> dict[str, tuple[float, float]]:
    """Processor seconds of each service and database: planned, measured."""
    planned = zip((*SERVICES, "Valkey", "PostgreSQL"), plan_sale(sale_of(record), known).core_users, strict=True)
    return {name: (one.whole_s, record["cpu_s"][name]) for name, one in planned}


def operations(record: Mapping[str, Any], known: Coefficients) -> dict[str, tuple[float, float]]:
    """Operations of the night: planned, measured."""
    planned = plan_sale(sale_of(record), known).over_sale
    calls = {name: (planned[name], record["calls_ms"][call]["count"]) for name, call in CALLS.items()}
    return calls | {"frame": (planned["frame"], record["frames"])}


def table(record: Mapping[str, Any], known: Coefficients) -> str:
    """Both, as the guide shows them."""
    rows = [("", "planned", "measured", "ratio")]
    rows += [(f"{name}, processor s", f"{plan:,.1f}", f"{measured:,.1f}", f"{plan / measured:.2f} ×")
             for name, (plan, measured) in processor_s(record, known).items()]  # fmt: skip
    words = {"status": "polls", "claim": "passes"}
    rows += [(words.get(name, f"{name}s"), f"{plan:,.0f}", f"{measured:,.0f}", f"{plan / measured:.2f} ×")
             for name, (plan, measured) in operations(record, known).items()]  # fmt: skip
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|---:|---:|---:|", *lines[1:], "", f"The night of {record['date']}."])


def write(guide: Path = GUIDE) -> None:
    """Writes the table into docs/operate/capacity.md."""
    guide.write_text(BLOCK.replaced(guide.read_text(), table(measured_night(), parse(PATH.read_text()))))


if __name__ == "__main__":
    write()
