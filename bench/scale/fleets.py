"""Each operation with one or two processes of the service that does most of it, and how its ledger is checked.

Two processes are two ports between which the load generator's connections take turns, as a balancer would deal them.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from bench.harness import load, system
from bench.harness.cost import Done, Work
from bench.harness.load import Heard, Load, request
from bench.harness.measurement import Effort, Wrong, summed_up
from bench.harness.stage import Turn
from bench.line.joins import EVENT, JOIN
from bench.line.joins import compare as joined
from bench.line.status import PLACES, ROOM, asks
from bench.orders.checkout import sandbox, until_confirmed
from bench.orders.purchases import hold_beforehand, purchases, serve_held
from bench.stock.reservations import EVENT as SHOW
from bench.stock.reservations import compare as held
from bench.stock.reservations import wishes
from onsale.local.ports import HOST, free_port
from shared.contracts.queue import LifeReport, SignsOfLife
from shared.runtime.settings import development_keys
from shared.security.auth import sign_service_call

WISHES, QUICK_WISHES, ORDERS, QUICK_ORDERS, ORDER_S = 40_000, 2_000, 3_000, 60, 120.0
FANS, QUICK_FANS, SIGNS, SIGNERS = 200_000, 2_000, 20_000, 4
LOOKS, KNOWN_S = 200, 20.0


async def loaded(
    ports: Sequence[int], requests: Sequence[bytes], effort: Effort, *, wanted: int, repeat: bool = True
) -> tuple[Heard, Done]:
    """One load over these ports, and what it came to."""
    sent = await _answer_bytes(ports[0], requests[0]) if repeat and wanted == 200 else 0
    heard = await load.run_apart(
        Load(HOST, ports[0], requests, effort.connections, effort.seconds, warm_up_s=min(1.0, effort.seconds),
             repeat=repeat, wanted=wanted, also=tuple(ports[1:]))
    )  # fmt: skip
    seen = summed_up(heard, [], wanted=wanted)
    if seen.others or seen.broken:
        raise Wrong(f"answered otherwise: {seen.others}, {seen.broken} broken, e.g. {heard.refused[:1]}")
    return heard, Done(heard.statuses[wanted], seen.per_second, seen.p99_ms, sent)


async def _answer_bytes(port: int, asked: bytes) -> int:
    """The whole answer on the wire, header fields and body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(asked)
    head = await reader.readuntil(b"\r\n\r\n")
    length = load.LENGTH.search(head)
    writer.close()
    return len(head) + (int(length[1]) if length else 0)


async def _known(ports: Sequence[int], path: str) -> None:
    """Waits until each process has heard of the event. Raises `TimeoutError`."""
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(KNOWN_S):
        for port in ports:
            while True:
                if (await client.get(f"http://{HOST}:{port}{path}")).status_code == 200:
                    break
                await asyncio.sleep(0.05)


@asynccontextmanager
async def join(turn: Turn, effort: Effort, *, gateways: int, queues: int) -> AsyncIterator[Work]:
    """Joins; with two queues each gateway asks its own."""
    at = await system.serve(turn, ("queue", "gateway"))
    ports = [at["gateway"]]
    if queues > 1:
        await system.another(turn, "queue")
    if gateways > 1:
        its_queue = turn.told["queue-2" if queues > 1 else "queue"]["ONSALE_QUEUE_URL"]
        ports.append(await system.another(turn, "gateway", {"ONSALE_QUEUE_URL": its_queue}))
    await system.open_room(EVENT, at["queue"])
    await _known(ports, f"/events/{EVENT.event_id}/queue")
    heard = Heard(1)

    async def drive() -> Done:
        nonlocal heard
        heard, done = await loaded(ports, [JOIN], effort, wanted=201)
        return done

    async def check() -> list[str]:
        return await joined(turn, heard, "queue.place")

    yield Work(drive, check, keys="queue:*", schema="queue")


@asynccontextmanager
async def status(turn: Turn, effort: Effort, *, gateways: int) -> AsyncIterator[Work]:
    """Fans in line ask where they stand."""
    fans = QUICK_FANS if effort.quick else FANS
    at = await system.serve(turn, ("queue", "gateway"))
    ports = [at["gateway"], *[await system.another(turn, "gateway") for _ in range(gateways - 1)]]
    await system.apply_room(ROOM, at["queue"])
    await turn.sql(PLACES.format(event_id=EVENT.event_id, count=fans), "VACUUM ANALYZE queue.place")
    await system.open_room(ROOM, at["queue"])
    for port in ports:
        await system.until_line(port, ROOM, tail_seq=fans)
    asked = asks(EVENT.event_id, range(1, min(fans, 5_000) + 1))

    async def drive() -> Done:
        return (await loaded(ports, asked, effort, wanted=200))[1]

    yield Work(drive, _nothing_to_check)


async def _nothing_to_check() -> list[str]:
    return []


@asynccontextmanager
async def sign(turn: Turn, effort: Effort, *, queues: int) -> AsyncIterator[Work]:
    """Reports of signs of life, as gateways and notifiers send them; one sign is counted as one answer."""
    fans = QUICK_FANS if effort.quick else FANS
    at = await system.serve(turn, ("queue",))
    more = [await system.another(turn, "queue") for _ in range(queues - 1)]
    await system.apply_room(ROOM, at["queue"])
    await turn.sql(PLACES.format(event_id=EVENT.event_id, count=fans), "VACUUM ANALYZE queue.place")
    await system.open_room(ROOM, at["queue"])
    names = ["queue", *(f"queue-{n}" for n in range(2, 2 + len(more)))]
    ports = [int(turn.told[name]["QUEUE_INTERNAL_PORT"]) for name in names]
    each = min(SIGNS, fans)

    async def drive() -> Done:
        reports = [_report(first, each) for first in range(1, fans - each + 2, each)]
        fewer = Effort(effort.seconds, SIGNERS, effort.rounds, effort.quick)
        done = (await loaded(ports, reports, fewer, wanted=200))[1]
        return Done(done.count * each, done.per_second * each, done.p99_ms)

    yield Work(drive, _nothing_to_check)


def _report(first: int, count: int) -> bytes:
    signs = SignsOfLife(event_id=EVENT.event_id, epoch=1, lanes={0: list(range(first, first + count))})
    body = LifeReport(reporter=f"bench-{first}", events=[signs]).model_dump_json().encode()
    proof = sign_service_call(development_keys("service"), "POST", "/internal/life", body)
    return request("POST", "/internal/life", body, **proof)


@asynccontextmanager
async def _venue(turn: Turn, inventories: int) -> AsyncIterator[list[int]]:
    """So many processes of inventory, the stock put up before they start."""
    at = await system.serve(turn, ("inventory",))
    ports = [at["inventory"], *[await system.another(turn, "inventory") for _ in range(inventories - 1)]]
    await _known(ports, f"/events/{SHOW.event_id}")
    yield ports


async def put_up(turn: Turn, _effort: Effort) -> None:
    """The venue and its stock, by a process that leaves again."""
    async with turn.some() as before:
        at = await system.serve(before, ("inventory",))
        await system.apply_to_inventory(SHOW, at["inventory"])
    await turn.sql("CHECKPOINT")


@asynccontextmanager
async def hold(turn: Turn, effort: Effort, *, inventories: int) -> AsyncIterator[Work]:
    """Reservations, half of them seats and half general admission."""
    async with _venue(turn, inventories) as ports:
        asked, heard = wishes(of=QUICK_WISHES if effort.quick else WISHES), Heard(1)

        async def drive() -> Done:
            nonlocal heard
            heard, done = await loaded(ports, asked, effort, wanted=201, repeat=False)
            return done

        async def check() -> list[str]:
            on_disk = await turn.count("SELECT count(*) FROM inventory.reservation WHERE event_id = $1", SHOW.event_id)
            seats = await turn.count("SELECT count(*) FROM inventory.seat WHERE status = 'held'")
            ga = await turn.count("SELECT sum(capacity - seats_remaining) FROM inventory.section WHERE kind = 'ga'")
            return held(heard, on_disk=on_disk, seats=seats, ga=ga)

        yield Work(drive, check, keys="inventory:*", schema="inventory")


@asynccontextmanager
async def seats(turn: Turn, effort: Effort, *, inventories: int) -> AsyncIterator[Work]:
    """Fifty seats of a section, as an admitted fan's page asks for them."""
    async with _venue(turn, inventories) as ports:

        async def drive() -> Done:
            return (await loaded(ports, _looks(), effort, wanted=200))[1]

        yield Work(drive, _nothing_to_check)


@functools.cache
def _looks() -> list[bytes]:
    """The credentials of reservations, for looking."""
    proofs = [wish.partition(b"authorization: ")[2].partition(b"\r\n")[0].decode() for wish in wishes(of=LOOKS)]
    path = f"/events/{SHOW.event_id}/sections/S0/seats?page=1&page_size=50"
    return [request("GET", path, authorization=proof) for proof in proofs]


async def held_beforehand(turn: Turn, effort: Effort) -> None:
    """A reservation for every order there will be."""
    await hold_beforehand(turn, QUICK_ORDERS if effort.quick else ORDERS)


@asynccontextmanager
async def order(turn: Turn, effort: Effort, *, desks: int) -> AsyncIterator[Work]:
    """Orders from the request to their confirmation; the provider's webhooks go to the first process."""
    count, port = QUICK_ORDERS if effort.quick else ORDERS, free_port()
    provider = {"ONSALE_SANDBOX_URL": await sandbox(turn, f"http://{HOST}:{port}/webhooks/sandbox")}
    await serve_held(turn, held=count, settings=provider, fixed={"orders": port})
    more = tuple([await system.another(turn, "orders") for _ in range(desks - 1)])
    asked = purchases(count)

    async def drive() -> Done:
        heard = await load.run_apart(
            Load(HOST, port, asked, effort.connections, ORDER_S, warm_up_s=0, wanted=202, also=more)
        )
        await until_confirmed(turn, "ours", 'orders."order"', heard, count)
        took = await turn.row('SELECT extract(epoch FROM max(confirmed_at) - min(created_at)) s FROM orders."order"')
        waits_ms = sorted(heard.latencies_ms)
        return Done(count, count / float(took["s"]), waits_ms[int(count * 0.99)])

    async def check() -> list[str]:
        sold = await turn.count("SELECT count(*) FROM inventory.reservation WHERE status = 'confirmed'")
        if sold != count:
            raise Wrong(f"{count} orders confirmed, {sold} reservations sold")
        return [f"{count:,} orders answered 202 = confirmed = charged once = sold"]

    yield Work(drive, check, schema="orders")
