"""What the fans observed, and the guarantees it proves: no number twice, nobody overtaken, nothing oversold.

The books after a sale: compared again and again until its last payments are through.

Behaviour profiles of fans: shares between 0 and 1, and payment methods by weight.
"""

import asyncio
import bisect
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from onsale.admin_client import AdminClient
from onsale.data_dir import admin_key


@dataclass
class Observations:
    """Facts recorded by fans as they happen. Times are monotonic seconds of this process."""

    capacity: int = 0
    joined: int = 0
    called: int = 0
    held: int = 0
    bought: int = 0
    gave_up: int = 0
    empty_handed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    tickets_sold: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    sold_by_type: Counter[str] = field(default_factory=Counter)
    minor_by_type: Counter[str] = field(default_factory=Counter)
    ordered_minor: int = 0
    tickets_of: Counter[str] = field(default_factory=Counter)  # by e-mail address
    _numbers: Counter[tuple[int, int]] = field(default_factory=Counter)
    _seats: Counter[str] = field(default_factory=Counter)
    _called_at: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    inversions: int = 0

    def joined_at_place(self, join_seq: int, *, lane: int = 0) -> None:
        self.joined += 1
        self._numbers[lane, join_seq] += 1

    def record_call(self, join_seq: int, at_s: float, *, lane: int = 0) -> None:
        """A fan was called. Keeps the largest number of the lane known to be called at each time."""
        self.called += 1
        called_at = self._called_at[lane]
        if not called_at or join_seq > called_at[-1][1]:
            called_at.append((at_s, join_seq))

    def check_not_overtaken(self, join_seq: int, polled_at_s: float, *, lane: int = 0) -> None:
        """A fan polled at `polled_at_s` and must still wait: no fan behind may have been called before that."""
        called_at = self._called_at[lane]
        known = bisect.bisect_left(called_at, (polled_at_s, 0)) - 1
        if known >= 0 and called_at[known][1] > join_seq:
            self.inversions += 1

    def record_purchase(self, seats: list[str], tickets: int) -> None:
        self.bought += 1
        self.tickets_sold += tickets
        self._seats.update(seats)

    def record_prices(self, tickets: Iterable[tuple[str | None, int, int]], *, total_minor: int) -> None:
        """Price type, number and price of the tickets of an order, and what the order cost with all fees. Nothing is
        kept by type where there are no types.
        """
        self.ordered_minor += total_minor
        for type_id, quantity, unit_price_minor in tickets:
            if type_id is not None:
                self.sold_by_type[type_id] += quantity
                self.minor_by_type[type_id] += quantity * unit_price_minor

    @property
    def duplicate_numbers(self) -> int:
        return sum(times - 1 for times in self._numbers.values())

    @property
    def oversold(self) -> int:
        """Seats sold twice, and tickets beyond the capacity."""
        return sum(times - 1 for times in self._seats.values()) + max(0, self.tickets_sold - self.capacity)

    @property
    def failures(self) -> list[str]:
        """What went wrong, or why the simulation proves nothing; empty when all is well."""
        broken = {"oversold": self.oversold, "inversions": self.inversions, "duplicate numbers": self.duplicate_numbers}
        found = [f"{count} {name}" for name, count in broken.items() if count]
        found += [f"{count} times {what}" for what, count in sorted(self.failed.items())]
        if not self.joined:
            found.append("nobody joined: nothing was tried")
        elif not self.bought and self.held:
            found.append("nobody bought anything, although tickets were held")
        return found


SETTLE_S, QUIET_S, READ_INTERVAL_S = 150.0, 4.0, 1.0


async def what_stays_wrong(
    read: Callable[[], Awaitable[list[str]]], *, settle_s: float = SETTLE_S, quiet_s: float = QUIET_S
) -> list[str]:
    """What is wrong, a sentence each, once nothing has been for `quiet_s` or after `settle_s`."""
    deadline_s, quiet_since_s = time.monotonic() + settle_s, 0.0
    while True:
        wrong = await read()
        now_s = time.monotonic()
        quiet_since_s = 0.0 if wrong else (quiet_since_s or now_s)
        if now_s > deadline_s or (quiet_since_s and now_s - quiet_since_s >= quiet_s):
            return wrong
        await asyncio.sleep(READ_INTERVAL_S)


async def wrong_books(url: str, data_dir: Path, event_id: str, history: Path) -> list[str]:
    """The promises to fans and the invariants that stay broken once no payment is on its way any more: what the history
    says that fans were told, the databases of the suite at `url`, and the provider's list of charges.
    """
    from onsale.history.reading import report_on  # as slow to import as what it reads with

    async def read() -> list[str]:
        audit = await admin.audit(event_id)
        report = await report_on(history, [event_id], data_dir, None)
        return [violation.sentence for violation in report.violations] + [
            f"{row.service}: {row.invariant}: {row.detail}" for row in audit if not row.holds
        ]

    async with httpx.AsyncClient(trust_env=False) as client:
        admin = AdminClient(client, url, admin_key(data_dir))
        return await what_stays_wrong(read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`patience_s` is how long a payment may stay open before the fan cancels; without it no fan does."""

    methods: Mapping[str, int]
    leaves_line: float
    leaves_hold: float
    repeats_hold: float
    cancels: float = 0.0
    payments_max: int = 2
    patience_s: float | None = None
    page: Mapping[str, int]


CALM = Profile(
    methods={"ok": 84, "decline": 4, "slow": 3, "error_then_ok": 4, "duplicate_webhooks": 5},
    leaves_line=0.02,
    leaves_hold=0.03,
    repeats_hold=0.1,
    page={"pay": 1},
)
WILD = Profile(
    methods={
        "ok": 10, "decline": 10, "slow": 8, "timeout_after_success": 4, "error_then_ok": 10, "duplicate_webhooks": 10,
        "reordered_webhooks": 10, "late_success": 10, "success_after_cancel": 8, "double_success": 10,
        "refund_fails_once": 10, "redirect": 10,
    },
    leaves_line=0.01,
    leaves_hold=0.02,
    repeats_hold=0.4,
    cancels=0.15,
    payments_max=3,
    patience_s=8.0,
    page={"pay": 6, "decline": 2, "cancel": 1, "": 1},
)  # fmt: skip
