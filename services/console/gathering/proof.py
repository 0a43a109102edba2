"""The proof line: what the services' checks of the invariants say about the four promises of a sale.

Each figure counts the rules that were found broken, by their names in the reports.
"""

from collections.abc import Iterable

from shared.contracts.admin.console import ProofVitals
from shared.report.invariants import CheckedInvariant

OVERSOLD = (
    "1 database: available + held + sold + blocked = capacity", "2 a seat has at most one live owner",
    "2 sold ≤ capacity",
)  # fmt: skip
DUPLICATES = (
    "3 a holder has one live place", "3 no number is given twice: the counter is at or past the database",
    "6 one order per idempotency key", "6 one order per reservation",
)  # fmt: skip
INVERSIONS = ("5 nobody is called beyond the head",)
CHARGED_TWICE = ("6 one live attempt per order", "7 a confirmed order is paid exactly, or authorised")


def proof_of(checked: Iterable[CheckedInvariant], *, at_ms: int) -> ProofVitals:
    """The proof line of what was checked. A rule that nobody checked is not known to hold: its figure is null."""
    holds = {row.invariant: row.holds for row in checked}

    def broken(rules: tuple[str, ...]) -> int | None:
        found = [holds.get(rule) for rule in rules]
        return None if None in found else found.count(False)

    return ProofVitals(
        oversold=broken(OVERSOLD), duplicates=broken(DUPLICATES), inversions=broken(INVERSIONS),
        charged_twice=broken(CHARGED_TWICE), at_ms=at_ms,
    )  # fmt: skip
