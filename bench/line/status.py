"""P2: the status of a waiting fan through the real gateway, against a bare server; and its calls of the databases."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import orjson

from bench.harness import system
from bench.harness.load import LoadResult, request
from bench.harness.measurement import CheckFailed, Measurement, Side, Target, Trial
from bench.line.joins import EVENT, PLACES
from onsale.local.ports import HOST
from shared.security.tokens import QueueToken, QueueTokens, development_keys

PATH = f"/events/{EVENT.event_id}/queue/status"
FANS, IDLE_S, CALLS_PER_POLL_MAX = 5_000, 3.0, 0.01
ROOM = EVENT.model_copy(update={"room": EVENT.room.model_copy(update={"max_active": 0})})


def status() -> Measurement:
    """The measurement, before it is run."""
    polls = Polls()
    return Measurement(
        key="P2",
        title="status of a waiting fan",
        unit="answers per second as heard by the load generator",
        at_least=0.65,
        aim=0.8,
        settings=[
            f"{FANS:,} waiting fans ask in turn, each with a queue token. Nobody is called meanwhile.",
            "Ours: one gateway process, default settings; the queue runs beside it, ticks and shows its frames.",
            "Bare: one uvicorn process (uvloop, httptools) with an ASGI app that answers one stored answer of the "
            "gateway, header fields and body, byte for byte.",
            "The load generator is slower than either server, so rates say little.",
            "Engine calls per poll: requests read by Valkey and transactions at PostgreSQL during the load, less what "
            "an idle period of the same suite makes in as much time. Signs of life go in a batch per reporting period.",
        ],
        sides=(Side("ours", polls.open_ours), Side("bare", polls.open_bare)),
    )


async def open_long_line(trial: Trial, queue_port: int, fans: int) -> None:
    """Opens the room with so many places in its line, whom nobody calls."""
    await system.apply_room(ROOM, queue_port)
    await trial.sql(PLACES.format(event_id=EVENT.event_id, count=fans), "VACUUM ANALYZE queue.place")
    await system.open_room(ROOM, queue_port)


def status_requests(event_id: str, numbers: range) -> list[bytes]:
    """The status requests of these fans, signed beforehand."""
    tokens, issued_s = QueueTokens(development_keys("queue-token")), int(time.time())
    signed = (tokens.sign(QueueToken(event_id, 1, 0, n, f"fan-{n}", issued_at_s=issued_s)) for n in numbers)
    return [request("GET", PATH, authorization=f"Bearer {token}") for token in signed]


@dataclass
class Polls:
    """Both sides; the bare server repeats an answer of ours."""

    answer: str = ""

    @asynccontextmanager
    async def open_ours(self, trial: Trial) -> AsyncIterator[Target]:
        ports = await system.serve(trial, ("queue", "gateway"))
        await open_long_line(trial, ports["queue"], FANS)
        await system.until_line_is_shown(ports["gateway"], ROOM, tail_seq=FANS)
        requests = status_requests(EVENT.event_id, range(1, FANS + 1))
        self.answer = await _answer(ports["gateway"], requests[-1])
        start = await DatabaseCalls.calls(trial)
        await asyncio.sleep(IDLE_S)
        before = await DatabaseCalls.calls(trial)
        idle = before.since(start)

        async def check(result: LoadResult) -> list[str]:
            spent = (await DatabaseCalls.calls(trial)).since(before)
            polls = result.statuses[200]
            each = [max(0.0, now - at_rest * spent.seconds / idle.seconds) / polls
                    for now, at_rest in ((spent.valkey, idle.valkey), (spent.postgres, idle.postgres))]  # fmt: skip
            if max(each) > CALLS_PER_POLL_MAX:
                raise CheckFailed(f"a poll made {each[0]:.3f} calls of Valkey and {each[1]:.3f} of PostgreSQL")
            return [f"engine calls per poll: Valkey {each[0]:.4f}, PostgreSQL {each[1]:.4f}, over {polls:,} polls"]

        yield Target(ports["gateway"], requests, True, check, expected_status=200)

    @asynccontextmanager
    async def open_bare(self, trial: Trial) -> AsyncIterator[Target]:
        port = await trial.serve_textbook("bare", BENCH_ANSWER=base64.b64encode(self.answer.encode()).decode())
        requests = status_requests(EVENT.event_id, range(1, FANS + 1))

        async def check(result: LoadResult) -> list[str]:
            answered = orjson.loads(await _answer(port, requests[0]))
            if answered != orjson.loads(self.answer):
                raise CheckFailed("the bare server answered something else")
            return ["the same header fields and body as ours"]

        yield Target(port, requests, True, check, expected_status=200)


async def _answer(port: int, request_bytes: bytes) -> str:
    """Header fields and body of one answer, as the bare server reads them; uvicorn itself adds the date."""
    head, *fields = request_bytes.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    headers = [(name, value) for name, value in (field.split(": ", 1) for field in fields)]
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"http://{HOST}:{port}{head.split(' ')[1]}", headers=headers)
    response.raise_for_status()
    kept = [(name, value) for name, value in response.headers.items() if name not in ("date", "server", "connection")]
    varying = [(name, "0" * len(value) if name == "x-request-id" else value) for name, value in kept]
    return orjson.dumps([varying, response.text]).decode()


@dataclass(frozen=True)
class DatabaseCalls:
    """Calls by all clients so far: reads as Valkey counts them, transactions as PostgreSQL does."""

    valkey: int
    postgres: int
    seconds: float

    @classmethod
    async def calls(cls, trial: Trial) -> "DatabaseCalls":
        async with trial.redis() as client:
            reads = (await client.info("stats"))["total_reads_processed"]
        transactions = await trial.count(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
        return cls(int(reads), transactions, time.perf_counter())

    def since(self, before: "DatabaseCalls") -> "DatabaseCalls":
        return DatabaseCalls(
            self.valkey - before.valkey, self.postgres - before.postgres, self.seconds - before.seconds
        )
