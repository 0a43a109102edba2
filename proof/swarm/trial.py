"""Runs one plan: a sale with faults, after which everything heals by itself, everybody's visit ends, the audit is clean
and the checker of histories finds nothing.

What must be over soon after a sale has healed, by the database: nothing waits for ever, nothing is overdue.

It is no check of histories: those are checked after a suite has stopped, too, and then nothing is repaired any more.
"""

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from onsale.admin_client import AdminClient
from onsale.client import Problem
from onsale.errors import OperatorError
from proof.insistence import Meetings, Unanswered
from proof.part import Trial
from proof.swarm.faults.fault import Fault
from proof.swarm.faults.machine import FAULTS
from proof.swarm.plan import Plan, PlannedFan, PlannedFault
from proof.swarm.site import PostgresTemplate, Site, site_of
from proof.swarm.visits import PROBE_SECTION, TIMEOUT_S, OrderStaysOpen, SwarmOperator, Visit, event_file

UNREAD = "SELECT count(*) FROM {0}.outbox_batch WHERE id > (SELECT coalesce(min(id), 0) FROM {0}.outbox_cursor)"
OVERDUE_MS = "(extract(epoch FROM now()) - 15) * 1000"
LEFT: Mapping[str, str] = {
    "events of the queue not read": UNREAD.format("queue"),
    "events of inventory not read": UNREAD.format("inventory"),
    "events of orders not read": UNREAD.format("orders"),
    "webhooks not delivered": "SELECT count(*) FROM orders.webhook_delivery WHERE status <> 'delivered'",
    "mails neither sent nor given up":
        "SELECT count(*) FROM orders.mail WHERE sent_at IS NULL AND abandoned_at IS NULL AND due_at < now()",
    "confirmed orders without tickets":
        "SELECT count(*) FROM orders.\"order\" WHERE confirmed_at IS NOT NULL AND fulfilled_at IS NULL",
    "confirmed orders without a webhook":
        "SELECT count(*) FROM orders.\"order\" o WHERE confirmed_at IS NOT NULL AND NOT EXISTS "
        "(SELECT FROM orders.webhook_delivery d WHERE d.reference = o.reference AND d.kind = 'order.confirmed')",
    "orders pending 15 s after their deadline":
        "SELECT count(*) FROM orders.\"order\" WHERE status = 'pending' AND expires_at < now() - interval '15 s'",
    "holds 15 s after their deadline":
        "SELECT count(*) FROM inventory.reservation WHERE status = 'pending_payment' AND "
        f"reserved_until_ms < {OVERDUE_MS}",
    "calls 15 s after their deadline":
        "SELECT count(*) FROM queue.admission JOIN queue.place USING (event_id, epoch, lane, join_seq) "
        f"WHERE ended_at IS NULL AND state = 'called' AND deadline_ms < {OVERDUE_MS}",
}  # fmt: skip


async def left_over(site: Site) -> list[str]:
    """What is not over, with its number."""
    counts = {what: (await site.query(query))[0][0] for what, query in LEFT.items()}
    return [f"{count} {what}" for what, count in counts.items() if count]


HEALS_WITHIN_S = 45.0
CLEAN_WITHIN_S = 75.0  # what is repaired by looking again (stock, charges) is looked at once a minute


@dataclass
class Outcome:
    """`found` are sentences about what did not hold; nothing found is a trial survived."""

    plan: Plan
    found: list[str] = field(default_factory=list)
    silences_s: dict[str, float] = field(default_factory=dict)
    acknowledgements: int = 0
    bought: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list)

    def trials(self, guilty: Sequence[PlannedFault]) -> list[Trial]:
        """A row for each fault; only the `guilty` ones did not survive."""
        return [
            Trial(
                fault.what, survived=fault not in guilty, silence_s=round(self.silences_s.get(fault.what, 0.0), 2),
                lost=self.lost if fault in guilty else 0,
            )
            for fault in self.plan.faults
        ]  # fmt: skip


class TrialRun:
    """One trial on its site."""

    def __init__(self, site: Site, plan: Plan, faults: Sequence[Fault], *, clean_within_s: float) -> None:
        self.site, self.plan, self.history, self.faults = site, plan, site.history, faults
        self._clean_within_s = clean_within_s
        self.meetings, self.outcome = Meetings(), Outcome(plan)
        self.orders: list[str] = []
        self.times: dict[str, list[tuple[float, float]]] = {}

    async def run(self) -> Outcome:
        async with self._clients() as (http, page):
            admin = AdminClient(http, self.site.fleet.url, self.site.fleet.admin_key)
            operator = SwarmOperator(admin, event_file(self.site.event_id, self.plan), self.orders)
            await operator.open(self.site.receiver.url)
            self.site.began_s = time.monotonic()
            fans = [self._visit(http, page, planned) for planned in self.plan.fans]
            lives = [asyncio.create_task(fan.live()) for fan in fans]
            others = [asyncio.create_task(self._act(operator, planned)) for planned in self.plan.actions]
            for planned, fault in zip(self.plan.faults, self.faults, strict=True):
                others.append(asyncio.create_task(self._happen(planned, fault)))
            try:
                await asyncio.gather(*others)
                await self._heal(operator, fans, lives)
                await self._last_fan(http, page)
                await self._settle(admin)
            finally:
                for task in (*lives, *others):
                    task.cancel()
                await asyncio.gather(*lives, *others, return_exceptions=True)
        self._conclude(fans, operator)
        return self.outcome

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
        """For everybody, recorded; and for the provider's pages."""
        async with (
            self.site.fleet.browser() as http,
            httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as page,
        ):
            yield http, page

    def _visit(self, http: httpx.AsyncClient, page: httpx.AsyncClient, planned: PlannedFan) -> Visit:
        tickets_max = self.plan.sales.get("tickets_per_order", 6)
        return Visit(
            self.site.fleet.url, http, self.site.event_id, planned, self.meetings, self.orders, page,
            tickets_max=tickets_max, types=self.plan.types,
        )  # fmt: skip

    async def _at(self, at_s: float) -> None:
        await asyncio.sleep(self.site.began_s + at_s - time.monotonic())

    async def _act(self, operator: SwarmOperator, planned: Any) -> None:
        await self._at(planned.at_s)
        self.site.say(f"operator: {planned.action}")
        await operator.do(planned)

    async def _happen(self, planned: PlannedFault, fault: Fault) -> None:
        await self._at(planned.at_s)
        async with self.site.alone_with(fault.touches(fault.target)):
            await self._do(planned, fault)

    async def _do(self, planned: PlannedFault, fault: Fault) -> None:
        self.history.note("fault_began", fault=planned.what, target=planned.target)
        self.site.say(f"begins: {planned.what} ({planned.target})")
        began_s = time.monotonic()
        await fault.begin(self.site)
        await self._at(planned.at_s + planned.for_s)
        await fault.end(self.site)
        self.times.setdefault(planned.what, []).append((began_s, time.monotonic()))
        self.history.note("fault_ended", fault=planned.what, target=planned.target)
        self.site.say(f"ended: {planned.what} ({planned.target})")

    async def _heal(self, operator: SwarmOperator, fans: list[Visit], lives: list[asyncio.Task[None]]) -> None:
        """Nothing is repaired; operators only end what they themselves restricted."""
        self.meetings.deadline_s = time.monotonic() + HEALS_WITHIN_S
        await self._until_true(lambda: _succeeds(operator.make_easy()), "operators cannot change the room")
        _, pending = await asyncio.wait(lives, timeout=HEALS_WITHIN_S + 2 * TIMEOUT_S) if lives else (set(), set())
        for fan, life in zip(fans, lives, strict=True):
            if life in pending:
                life.cancel()
                self.outcome.found.append(f"a fan ({fan.plan.behaviour}) has not finished: {fan.stage}")
            elif isinstance(error := life.exception(), Unanswered):
                self.outcome.found.append(f"a fan ({fan.plan.behaviour}): {error}")
            elif error:
                raise error
        self.site.say("every visit has ended")

    async def _last_fan(self, http: httpx.AsyncClient, page: httpx.AsyncClient) -> None:
        """A fan who comes now buys a place that nobody else can have."""
        visit = self._visit(http, page, PlannedFan("buys", 0.0, self.plan.seed))
        self.meetings.deadline_s = time.monotonic() + HEALS_WITHIN_S
        try:
            assert await visit.come_in(), f"the last fan was not called: {visit.stage}"
            held = await visit.fan.hold({"ga": [{"section_id": PROBE_SECTION, "quantity": 1}]})
            status = await visit.follow(await visit.pay(held, "ok"))
            assert status == "confirmed", f"the last fan's order is {status}"
        except (AssertionError, Problem, OrderStaysOpen, Unanswered) as failed:
            self.outcome.found.append(f"afterwards nobody can buy: {failed}")
        self.site.say("the last fan has bought")

    async def _settle(self, admin: AdminClient) -> None:
        """Waits for a clean audit, until nothing is left over, and until the checker of histories finds nothing."""
        broken: list[str] = ["the audit never answered"]
        self.history.note("end_of_history", event_id=self.site.event_id)

        async def is_clean() -> bool:
            rows = await admin.audit(self.site.event_id)
            broken[:] = [f"{row.service}: {row.invariant}: {row.detail}" for row in rows if not row.holds]
            broken.extend(await left_over(self.site))
            violations = (await self.site.fleet.checked(self.site.event_id)).violations
            self.outcome.lost = len(violations)
            broken.extend(f"{found.check}: {found.sentence} (lines {found.lines})" for found in violations)
            return not broken

        if not await self._until_true(lambda: _succeeds(is_clean()), None, within_s=self._clean_within_s):
            self.outcome.found.append(f"{self._clean_within_s:g} s later: {'; '.join(broken)}")
        self.site.say("the audit is over")

    async def _until_true(self, condition: Any, complaint: str | None, *, within_s: float = HEALS_WITHIN_S) -> bool:
        until_s = time.monotonic() + within_s
        while not await condition():
            if time.monotonic() > until_s:
                if complaint:
                    self.outcome.found.append(complaint)
                return False
            await asyncio.sleep(0.3)
        return True

    def _conclude(self, fans: list[Visit], operator: SwarmOperator) -> None:
        meetings, outcome = self.meetings, self.outcome
        outcome.found += meetings.found
        outcome.acknowledgements = meetings.acknowledgements
        outcome.bought = sum(fan.bought for fan in fans)
        for what, times in self.times.items():
            outcome.silences_s[what] = max(
                meetings.longest_silence_s(begin, end + HEALS_WITHIN_S) for begin, end in times
            )
        for name, program in self.site.processes():
            if not program.is_running:
                outcome.found.append(f"{name} has ended by itself: {program.log_tail()[-500:]}")
        outcome.notes = [
            *self.site.notes,
            *(f"{name}: {line}" for name, line in self.site.tracebacks()),
            *(f"refused {count} x {what}" for what, count in sorted(meetings.refusals.items())),
            *(f"failed {count} x {what}" for what, count in sorted(meetings.failures.items())),
            *(f"operator refused: {what}" for what in operator.refused),
        ]


async def _succeeds(work: Any) -> bool:
    """Whether an operator's work ends well, and not with False."""
    try:
        return await work is not False
    except (OperatorError, httpx.HTTPError):
        return False


async def try_plan(
    plan: Plan, template: PostgresTemplate, *, keep: Path | None = None, clean_within_s: float = CLEAN_WITHIN_S
) -> Outcome:
    """Runs the plan on a new site and checks its history. `keep` is a new folder for the logs, the history and the
    database of a trial in which something was found.
    """
    faults = [FAULTS[planned.kind](planned.target, planned.seed) for planned in plan.faults]
    async with site_of(plan, faults, template) as site:
        outcome = await TrialRun(site, plan, faults, clean_within_s=clean_within_s).run()
        if keep is not None and outcome.found:
            await asyncio.to_thread(site.postgres.end, signal.SIGINT)
            await asyncio.to_thread(shutil.copytree, site.folder.parent, keep)
            (keep / "notes.txt").write_text("\n".join([plan.json(), *outcome.notes, *outcome.found]) + "\n")
        return outcome
