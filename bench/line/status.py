"""P2: the status of a waiting fan through the real gateway, against the bare server, and what engines hear of it."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import httpx
import orjson
import redis.asyncio

from bench.harness import system
from bench.harness.load import Heard, request
from bench.harness.measurement import Measurement, Side, Target, Wrong
from bench.harness.stage import Turn
from bench.line.joins import EVENT
from onsale.local.engines import with_driver
from onsale.local.ports import HOST
from shared.runtime.settings import development_keys
from shared.security.tokens import QueueToken, QueueTokens

PATH = f"/events/{EVENT.event_id}/queue/status"
FANS, IDLE_S, CALLS_PER_POLL_MAX = 5_000, 3.0, 0.01
ROOM = EVENT.model_copy(update={"room": EVENT.room.model_copy(update={"max_active": 0})})
PLACES = """
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder)
SELECT '{event_id}', 1, 0, n, 'fan-' || n FROM generate_series(1, {count}) n
"""


def status() -> Measurement:
    """The measurement, not yet run."""
    polls = Polls()
    return Measurement(
        key="P2",
        title="status of a waiting fan",
        unit="answers per second as heard by the load generator",
        at_least=0.4,
        aim=0.6,
        settings=[
            f"{FANS:,} waiting fans ask in turn, each with a queue token. Nobody is called meanwhile.",
            "Ours: one gateway process, default settings; the queue runs beside it, ticks and shows its frames.",
            "Bare: one uvicorn process (uvloop, httptools) with an ASGI app that answers one stored answer of the "
            "gateway, header fields and body, byte for byte.",
            "The ratio compares answers per second of the server process's processor time, because the load generator "
            "is slower than either server: what each could serve with a core to itself.",
            "Engine calls per poll: requests read by Valkey and transactions at PostgreSQL during the load, less what "
            "an idle period of the same suite makes in as much time. Signs of life go in a batch per reporting period.",
        ],
        sides=(Side("ours", polls.open_ours), Side("bare", polls.open_bare)),
        by_cpu=True,
    )


def asks(event_id: str, numbers: range) -> list[bytes]:
    """The requests of these fans, signed beforehand."""
    tokens, issued_s = QueueTokens(development_keys("queue-token")), int(time.time())
    signed = (tokens.sign(QueueToken(event_id, 1, 0, n, f"fan-{n}", issued_s)) for n in numbers)
    return [request("GET", PATH, authorization=f"Bearer {token}") for token in signed]


@dataclass
class Polls:
    """Both sides; the bare one repeats what ours was heard to answer."""

    answer: str = ""

    @asynccontextmanager
    async def open_ours(self, turn: Turn) -> AsyncIterator[Target]:
        ports = await system.serve(turn, ("queue", "gateway"))
        await system.apply_room(ROOM, ports["queue"])
        await turn.sql(PLACES.format(event_id=EVENT.event_id, count=FANS))
        await system.open_room(ROOM, ports["queue"])
        await system.until_line(ports["gateway"], ROOM, tail_seq=FANS)
        asked = asks(EVENT.event_id, range(1, FANS + 1))
        self.answer = await _answer(ports["gateway"], asked[-1])
        idle = await Engines.calls(turn)
        await asyncio.sleep(IDLE_S)
        before = await Engines.calls(turn)
        resting = before.since(idle)

        async def check(heard: Heard) -> list[str]:
            spent = (await Engines.calls(turn)).since(before)
            polls = heard.statuses[200]
            each = [max(0.0, now - still * spent.seconds / resting.seconds) / polls
                    for now, still in ((spent.valkey, resting.valkey), (spent.postgres, resting.postgres))]  # fmt: skip
            if max(each) > CALLS_PER_POLL_MAX:
                raise Wrong(f"a poll made {each[0]:.3f} calls of Valkey and {each[1]:.3f} of PostgreSQL")
            return [f"engine calls per poll: Valkey {each[0]:.4f}, PostgreSQL {each[1]:.4f}, over {polls:,} polls"]

        yield Target(ports["gateway"], asked, True, check, wanted=200, pid=turn.pids["gateway"])

    @asynccontextmanager
    async def open_bare(self, turn: Turn) -> AsyncIterator[Target]:
        port = await turn.serve_textbook("bare", BENCH_ANSWER=base64.b64encode(self.answer.encode()).decode())
        asked = asks(EVENT.event_id, range(1, FANS + 1))

        async def check(heard: Heard) -> list[str]:
            there = orjson.loads(await _answer(port, asked[0]))
            if there != orjson.loads(self.answer):
                raise Wrong("the bare server answered something else")
            return ["the same header fields and body as ours"]

        yield Target(port, asked, True, check, wanted=200, pid=turn.pids["bare"])


async def _answer(port: int, asked: bytes) -> str:
    """Header fields and body of one answer, as the bare server takes them; the server itself adds the date."""
    head, *fields = asked.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    headers = [(name, value) for name, value in (field.split(": ", 1) for field in fields)]
    async with httpx.AsyncClient(trust_env=False) as client:
        said = await client.get(f"http://{HOST}:{port}{head.split(' ')[1]}", headers=headers)
    said.raise_for_status()
    kept = [(name, value) for name, value in said.headers.items() if name not in ("date", "server", "connection")]
    varying = [(name, "0" * len(value) if name == "x-request-id" else value) for name, value in kept]
    return orjson.dumps([varying, said.text]).decode()


@dataclass(frozen=True)
class Engines:
    """What came in from clients, as Valkey counts reads and PostgreSQL transactions."""

    valkey: int
    postgres: int
    seconds: float

    @classmethod
    async def calls(cls, turn: Turn) -> "Engines":
        async with redis.asyncio.Redis.from_url(turn.redis_url) as client:
            reads = (await client.info("stats"))["total_reads_processed"]
        connection = await asyncpg.connect(with_driver(turn.postgres_url))
        transactions = await connection.fetchval(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
        await connection.close()
        return cls(int(reads), int(transactions), time.perf_counter())

    def since(self, before: "Engines") -> "Engines":
        return Engines(self.valkey - before.valkey, self.postgres - before.postgres, self.seconds - before.seconds)
