"""Operations with one or two processes of the service that does most of the work, and the checks of their database.

The load generator's connections alternate between the ports of two processes, as a load balancer would distribute them.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.harness import load, system
from bench.harness.cost import LoadSummary, Workload
from bench.harness.load import Load, LoadResult, request
from bench.harness.measurement import CheckFailed, Effort, Trial, summarize
from bench.line.joins import EVENT, JOIN
from bench.line.joins import compare as joined
from bench.line.status import ROOM, open_long_line, status_requests
from bench.orders.checkout import sandbox, until_confirmed
from bench.orders.orders import hold_beforehand, purchases, serve_held
from bench.stock.reservations import EVENT as SHOW
from bench.stock.reservations import compare as held
from bench.stock.reservations import reservation_requests
from onsale.local.ports import HOST, free_port
from shared.contracts.queue import EventHeartbeats, HeartbeatReport
from shared.rpc import sign_service_call
from shared.security.tokens import development_keys

RESERVATIONS, QUICK_RESERVATIONS, ORDERS, QUICK_ORDERS, ORDER_S = 40_000, 2_000, 3_000, 60, 120.0
FANS, QUICK_FANS, HEARTBEATS, HEARTBEAT_CONNECTIONS = 200_000, 2_000, 20_000, 4
SEAT_REQUESTS = 200


async def run_load(
    ports: Sequence[int], requests: Sequence[bytes], effort: Effort, *, wanted: int, repeat: bool = True
) -> tuple[LoadResult, LoadSummary]:
    """Runs one load over these ports; the raw result and its summary."""
    sent = await _answer_bytes(ports[0], requests[0]) if repeat and wanted == 200 else 0
    result = await load.run_in_process(
        Load(HOST, ports[0], requests, effort.connections, effort.seconds, warm_up_s=min(1.0, effort.seconds),
             repeat=repeat, expected_status=wanted, more_ports=tuple(ports[1:]))
    )  # fmt: skip
    figures = summarize(result, [], wanted=wanted)
    if figures.other_statuses or figures.broken:
        raise CheckFailed(
            f"answered otherwise: {figures.other_statuses}, {figures.broken} broken, e.g. {result.refused[:1]}"
        )
    return result, LoadSummary(result.statuses[wanted], figures.per_second, figures.p99_ms, sent)


async def _answer_bytes(port: int, sample: bytes) -> int:
    """The whole answer on the wire, header fields and body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(sample)
    head = await reader.readuntil(b"\r\n\r\n")
    length = load.CONTENT_LENGTH.search(head)
    writer.close()
    return len(head) + (int(length[1]) if length else 0)


async def _until_event_is_known(ports: Sequence[int], path: str) -> None:
    """Waits until each process knows the event."""
    for port in ports:
        await system.until_answer(port, path)


@asynccontextmanager
async def join(trial: Trial, effort: Effort, *, gateways: int, queues: int) -> AsyncIterator[Workload]:
    """Joins; with two queues each gateway calls its own."""
    at = await system.serve(trial, ("queue", "gateway"))
    ports = [at["gateway"]]
    if queues > 1:
        await system.serve_another(trial, "queue")
    if gateways > 1:
        its_queue = trial.environments["queue-2" if queues > 1 else "queue"]["ONSALE_QUEUE_URL"]
        ports.append(await system.serve_another(trial, "gateway", {"ONSALE_QUEUE_URL": its_queue}))
    await system.open_room(EVENT, at["queue"])
    await _until_event_is_known(ports, f"/events/{EVENT.event_id}/queue")
    result = LoadResult(1)

    async def drive() -> LoadSummary:
        nonlocal result
        result, done = await run_load(ports, [JOIN], effort, wanted=201)
        return done

    async def check() -> list[str]:
        return await joined(trial, result, "queue.place")

    yield Workload(drive, check, redis_keys="queue:*", outbox_schema="queue")


@asynccontextmanager
async def status(trial: Trial, effort: Effort, *, gateways: int) -> AsyncIterator[Workload]:
    """Status polls of fans in line."""
    fans = QUICK_FANS if effort.quick else FANS
    at = await system.serve(trial, ("queue", "gateway"))
    ports = [at["gateway"], *[await system.serve_another(trial, "gateway") for _ in range(gateways - 1)]]
    await open_long_line(trial, at["queue"], fans)
    for port in ports:
        await system.until_line_is_shown(port, ROOM, tail_seq=fans)
    requests = status_requests(EVENT.event_id, range(1, min(fans, 5_000) + 1))

    async def drive() -> LoadSummary:
        return (await run_load(ports, requests, effort, wanted=200))[1]

    yield Workload(drive, _nothing_to_check)


async def _nothing_to_check() -> list[str]:
    return []


@asynccontextmanager
async def heartbeats(trial: Trial, effort: Effort, *, queues: int) -> AsyncIterator[Workload]:
    """Heartbeat reports, as gateways and notifiers send them; each place in a report counts as one answer."""
    fans = QUICK_FANS if effort.quick else FANS
    at = await system.serve(trial, ("queue",))
    more = [await system.serve_another(trial, "queue") for _ in range(queues - 1)]
    await open_long_line(trial, at["queue"], fans)
    names = ["queue", *(f"queue-{n}" for n in range(2, 2 + len(more)))]
    ports = [int(trial.environments[name]["QUEUE_INTERNAL_PORT"]) for name in names]
    each = min(HEARTBEATS, fans)

    async def drive() -> LoadSummary:
        reports = [_report(first, each) for first in range(1, fans - each + 2, each)]
        fewer = Effort(effort.seconds, HEARTBEAT_CONNECTIONS, effort.rounds, effort.quick)
        done = (await run_load(ports, reports, fewer, wanted=200))[1]
        return LoadSummary(done.count * each, done.per_second * each, done.p99_ms)

    yield Workload(drive, _nothing_to_check)


def _report(first: int, count: int) -> bytes:
    signs = EventHeartbeats(event_id=EVENT.event_id, epoch=1, lanes={0: list(range(first, first + count))})
    body = HeartbeatReport(reporter=f"bench-{first}", events=[signs]).model_dump_json().encode()
    proof = sign_service_call(development_keys("service"), "POST", "/internal/heartbeats", body)
    return request("POST", "/internal/heartbeats", body, **proof)


@asynccontextmanager
async def _venue(trial: Trial, inventories: int) -> AsyncIterator[list[int]]:
    """Runs `inventories` processes on a stock that was created before."""
    at = await system.serve(trial, ("inventory",))
    ports = [at["inventory"], *[await system.serve_another(trial, "inventory") for _ in range(inventories - 1)]]
    await _until_event_is_known(ports, f"/events/{SHOW.event_id}")
    yield ports


async def create_venue(trial: Trial, _effort: Effort) -> None:
    """Creates the venue and its stock with a process that stops afterwards."""
    async with trial.servers_within() as before:
        at = await system.serve(before, ("inventory",))
        await system.apply_to_inventory(SHOW, at["inventory"])
    await trial.sql("CHECKPOINT")


@asynccontextmanager
async def hold(trial: Trial, effort: Effort, *, inventories: int) -> AsyncIterator[Workload]:
    """Reservations, half of them seats and half general admission."""
    async with _venue(trial, inventories) as ports:
        requests, result = reservation_requests(of=QUICK_RESERVATIONS if effort.quick else RESERVATIONS), LoadResult(1)

        async def drive() -> LoadSummary:
            nonlocal result
            result, done = await run_load(ports, requests, effort, wanted=201, repeat=False)
            return done

        async def check() -> list[str]:
            on_disk = await trial.count("SELECT count(*) FROM inventory.reservation WHERE event_id = $1", SHOW.event_id)
            seats = await trial.count("SELECT count(*) FROM inventory.seat WHERE status = 'held'")
            ga = await trial.count("SELECT sum(capacity - seats_remaining) FROM inventory.section WHERE kind = 'ga'")
            return held(result, on_disk=on_disk, seats=seats, ga=ga)

        yield Workload(drive, check, redis_keys="inventory:*", outbox_schema="inventory")


@asynccontextmanager
async def seats(trial: Trial, effort: Effort, *, inventories: int) -> AsyncIterator[Workload]:
    """A page of fifty seats of a section, as an admitted fan's page requests it."""
    async with _venue(trial, inventories) as ports:

        async def drive() -> LoadSummary:
            return (await run_load(ports, _seat_requests(), effort, wanted=200))[1]

        yield Workload(drive, _nothing_to_check)


@functools.cache
def _seat_requests() -> list[bytes]:
    """Requests for seat pages, with the credentials of reservation requests."""
    proofs = [
        message.partition(b"authorization: ")[2].partition(b"\r\n")[0].decode()
        for message in reservation_requests(of=SEAT_REQUESTS)
    ]
    path = f"/events/{SHOW.event_id}/sections/S0/seats?page=1&page_size=50"
    return [request("GET", path, authorization=proof) for proof in proofs]


async def holds_for_orders(trial: Trial, effort: Effort) -> None:
    """A reservation for every order there will be."""
    await hold_beforehand(trial, QUICK_ORDERS if effort.quick else ORDERS)


@asynccontextmanager
async def order(trial: Trial, effort: Effort, *, processes: int) -> AsyncIterator[Workload]:
    """Orders from the request to their confirmation; the provider's webhooks go to the first process."""
    count, port = QUICK_ORDERS if effort.quick else ORDERS, free_port()
    provider = {"ONSALE_SANDBOX_URL": await sandbox(trial, f"http://{HOST}:{port}/webhooks/sandbox")}
    await serve_held(trial, held=count, settings=provider, fixed={"orders": port})
    more = tuple([await system.serve_another(trial, "orders") for _ in range(processes - 1)])
    requests = purchases(count)

    async def drive() -> LoadSummary:
        result = await load.run_in_process(
            Load(HOST, port, requests, effort.connections, ORDER_S, warm_up_s=0, expected_status=202, more_ports=more)
        )
        await until_confirmed(trial, "ours", 'orders."order"', result, count)
        took = await trial.row('SELECT extract(epoch FROM max(confirmed_at) - min(created_at)) s FROM orders."order"')
        return LoadSummary(count, count / float(took["s"]), load.quantile(result.latencies_ms, 0.99))

    async def check() -> list[str]:
        sold = await trial.count("SELECT count(*) FROM inventory.reservation WHERE status = 'confirmed'")
        if sold != count:
            raise CheckFailed(f"{count} orders confirmed, {sold} reservations sold")
        return [f"{count:,} orders answered 202 = confirmed = charged once = sold"]

    yield Workload(drive, check, outbox_schema="orders")
