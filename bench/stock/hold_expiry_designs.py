"""Designs of hold expiry, each in a process of its own: create holds, then read how late each one ended.

All holds are created at once, with deadlines evenly spread. All processes share one clock.
"""

import time
from typing import Protocol

from bench.harness import system
from bench.harness.testbed import Trial
from bench.stock.reservations import EVENT
from bench.stock.shop import TICKETS
from services.inventory.redis_keys import Keys
from shared.contracts.event_file import GaSection

SECTIONS, SECTION_CAPACITY = 10, 10_000
HOLDS_PER_STATEMENT = 1000


class ExpiryDesign(Protocol):
    """One design. `delays_ms` are those of the ended holds of one run; `tickets_left` can be bought."""

    name: str
    in_valkey: bool

    async def start(self, trial: Trial) -> None: ...
    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None: ...
    async def delays_ms(self, trial: Trial, run: str) -> list[float]: ...
    async def tickets_left(self, trial: Trial) -> int: ...


class OurExpiry:
    """The inventory process: deadlines in Redis, the decision in PostgreSQL, and a scan behind it."""

    name, in_valkey = "ours, deadlines + scan", True
    INSERT_HOLDS = (
        "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
        "reserved_until_ms, fingerprint) SELECT $1, md5($2 || n), $2 || n, 10000, 'EUR', 'pending_payment', ms, $2 "
        "FROM unnest($3::bigint[]) WITH ORDINALITY AS deadline (ms, n)",
        "INSERT INTO inventory.reservation_ga SELECT $1, md5($2 || n), 'GA' || n % $4::int, $5::int, 5000 "
        "FROM unnest($3::bigint[]) WITH ORDINALITY AS deadline (ms, n)",
    )
    UPDATE_COUNTERS = (
        "UPDATE inventory.section s SET seats_remaining = capacity - coalesce((SELECT sum(quantity) "
        "FROM inventory.reservation_ga g JOIN inventory.reservation r USING (event_id, reservation_id) "
        "WHERE g.section_id = s.section_id AND r.status = 'pending_payment'), 0)",
        "UPDATE inventory.event SET redis_epoch = redis_epoch + 1",
    )
    DELAYS = (
        "SELECT extract(epoch FROM l.released_at) * 1000 - r.reserved_until_ms AS ms FROM inventory.release_log l "
        "JOIN inventory.reservation r USING (event_id, reservation_id) WHERE r.fingerprint = $1"
    )

    async def start(self, trial: Trial) -> None:
        ports = await system.serve(trial, ("inventory",))
        sections = [GaSection(section_id=f"GA{n}", name="Floor", kind="ga", capacity=SECTION_CAPACITY, price_minor=5000)
                    for n in range(SECTIONS)]  # fmt: skip
        sales = EVENT.sales.model_copy(update={"grace_s": 0})
        event = EVENT.model_copy(update={"sections": sections, "sales": sales})
        await system.apply_to_inventory(event, ports["inventory"])

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        """Writes the holds to the database and raises the epoch; inventory then rebuilds Redis with them."""
        async with trial.connection() as connection, connection.transaction():
            await connection.execute(self.INSERT_HOLDS[0], EVENT.event_id, run, deadlines_ms)
            await connection.execute(self.INSERT_HOLDS[1], EVENT.event_id, run, deadlines_ms, SECTIONS, TICKETS)
            for statement in self.UPDATE_COUNTERS:
                await connection.execute(statement)

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        return [float(row["ms"]) for row in await trial.rows(self.DELAYS, run)]

    async def tickets_left(self, trial: Trial) -> int:
        """As Redis counts them, which grants holds."""
        async with trial.redis() as client:
            found = await client.hmget(Keys.of(EVENT.event_id).counts, [f"GA{n}:available" for n in range(SECTIONS)])
            return sum(int(left or 0) for left in found)


class TextbookExpiry:
    """The common part of the two textbook designs on PostgreSQL."""

    name, worker, in_valkey = "", "", False
    INSERT_HOLDS = (
        "INSERT INTO textbook.hold SELECT $1 || n, 'GA' || n % $3::int, $4::int, to_timestamp(ms / 1000.0) "
        "FROM unnest($2::bigint[]) WITH ORDINALITY AS deadline (ms, n)"
    )
    UPDATE_COUNTERS = (
        "UPDATE textbook.section s SET seats_remaining = $1::int - coalesce((SELECT sum(quantity) FROM textbook.hold h "
        "WHERE h.section_id = s.section_id AND ended_at IS NULL), 0)"
    )
    DELAYS = (
        "SELECT extract(epoch FROM ended_at - held_until) * 1000 AS ms FROM textbook.hold "
        "WHERE hold_id LIKE $1 || '%' AND ended_at IS NOT NULL"
    )

    async def start(self, trial: Trial) -> None:
        await trial.serve_textbook("hold_expiry_workers", BENCH_WORKER=self.worker)
        await trial.rows("INSERT INTO textbook.section SELECT 'GA' || n, $1 FROM generate_series(0, $2::int - 1) n "
                         "ON CONFLICT DO NOTHING", SECTION_CAPACITY, SECTIONS)  # fmt: skip

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        await trial.rows(self.INSERT_HOLDS, run, deadlines_ms, SECTIONS, TICKETS)
        await trial.rows(self.UPDATE_COUNTERS, SECTION_CAPACITY)

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        return [float(row["ms"]) for row in await trial.rows(self.DELAYS, run)]

    async def tickets_left(self, trial: Trial) -> int:
        return await trial.count("SELECT sum(seats_remaining) FROM textbook.section")


class ScanExpiry(TextbookExpiry):
    """A worker that ends all due holds in one statement, four times a second."""

    name, worker = "ledger scan", "scan"


class JobExpiry(TextbookExpiry):
    """A row in a table of jobs for each hold; eight workers run due jobs, one transaction each."""

    name, worker = "delayed job", "job"

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        await super().create_holds(trial, run, deadlines_ms)
        await trial.rows("INSERT INTO textbook.job (hold_id, run_at) SELECT hold_id, held_until FROM textbook.hold "
                         "WHERE hold_id LIKE $1 || '%'", run)  # fmt: skip


class TtlKeyExpiry(TextbookExpiry):
    """A key that expires; a worker that listens to keyspace notifications returns the tickets."""

    name, worker, in_valkey = "TTL key + its news", "ttl", True

    async def start(self, trial: Trial) -> None:
        await trial.serve_textbook("hold_expiry_workers", BENCH_WORKER=self.worker)
        async with trial.redis() as client:
            for n in range(SECTIONS):
                await client.set(f"ttl:left:GA{n}", SECTION_CAPACITY, nx=True)

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        async with trial.redis() as client:
            for first in range(0, len(deadlines_ms), HOLDS_PER_STATEMENT):
                async with client.pipeline(transaction=False) as many:
                    for n, at_ms in enumerate(deadlines_ms[first : first + HOLDS_PER_STATEMENT], first):
                        section = f"GA{n % SECTIONS}"
                        many.decrby(f"ttl:left:{section}", TICKETS)
                        many.set(f"ttl:hold:{run}-{n}-{at_ms}:{section}:{TICKETS}", 1, pxat=at_ms)
                    await many.execute()

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        async with trial.redis(decode_responses=True) as client:
            ended = [line.split() for line in await client.lrange("ttl:ended", 0, -1)]
            return [int(at) - int(hold.rpartition("-")[2]) for hold, at in ended if hold.startswith(f"{run}-")]

    async def tickets_left(self, trial: Trial) -> int:
        async with trial.redis() as client:
            found = await client.mget([f"ttl:left:GA{n}" for n in range(SECTIONS)])
            return sum(int(left or 0) for left in found)


DESIGNS: tuple[type[ExpiryDesign], ...] = (OurExpiry, TtlKeyExpiry, ScanExpiry, JobExpiry)


def deadlines_ms(count: int, *, first_in_s: float, spread_s: float) -> list[int]:
    """`count` deadlines, evenly spread over `spread_s`, the first one `first_in_s` from now."""
    first_ms = (time.time() + first_in_s) * 1000
    return [int(first_ms + n * spread_s * 1000 / count) for n in range(count)]
