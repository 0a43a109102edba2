"""The benchmark of one and two processes: the cost of an answer, and connections divided evenly between ports."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
import redis.asyncio

from bench.harness import cost as harness_cost
from bench.harness import system
from bench.harness.cost import Cost, LoadSummary, Workload, cost
from bench.harness.load import Load, drive, request
from bench.harness.measurement import CheckFailed, Effort
from bench.harness.testbed import Trial
from bench.scale.fleets import run_load
from bench.scale.processes import HEADINGS, ProcessCosts, _section_row, claims, halves
from bench.streams.listeners import ListenerGroup
from onsale.local.engines import with_driver
from onsale.local.ports import HOST

WRITE = (
    "INSERT INTO inventory.outbox (event_id, body, published_at) SELECT 'x', '{}', now() FROM generate_series(1, 40)"
)


async def test_the_cost_of_an_answer_counts_what_was_written_for_it(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_cost, "REST_S", 0.01)

    closing: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def up(servers: Trial) -> AsyncIterator[Workload]:
        server = await asyncpg.connect(with_driver(servers.postgres_url))
        await server.execute(WRITE)  # before the load, but counted: it belongs to the operation

        async def work() -> LoadSummary:
            await server.execute(WRITE)  # PostgreSQL counts it once this client disconnects
            async with redis.asyncio.Redis.from_url(servers.redis_url) as client:
                await client.xadd("log:{0}", {"event": "x" * 1000})
                await client.set("inventory:{x}:map:A", "." * 800)
            return LoadSummary(20, 10.0, 1.0)

        async def check() -> list[str]:
            return ["right"]

        async def close() -> None:
            await asyncio.sleep(0.2)
            await server.close()

        yield Workload(work, check, redis_keys="inventory:*", outbox_schema="inventory")
        closing.append(asyncio.create_task(close()))

    found = await cost(trial, up)
    assert found.per_answer["rows"] == 80 / 20
    assert found.per_answer["wal_bytes"] > 100
    assert 800 / 20 < found.per_answer["kept_bytes"] < 1200 / 20
    assert found.per_answer["log_bytes"] > 1000 / 20
    assert found.checked == ["right"]
    assert set(found.cpu_us) == set(trial.testbed.pids)


async def test_connections_are_divided_evenly_between_the_ports() -> None:
    connections: dict[int, int] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        connections[port] = connections.get(port, 0) + 1
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    servers = [await asyncio.start_server(serve, HOST, 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    result = await drive(
        Load(HOST, ports[0], [request("GET", "/")], 6, 0.1, 0, repeat=True, expected_status=200, more_ports=(ports[1],))
    )
    assert set(result.statuses) == {200}
    assert connections == dict.fromkeys(ports, 3)
    for server in servers:
        server.close()


async def test_one_answer_with_another_status_fails_the_measurement() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        statuses = itertools.chain(["201 Created", "503 Service Unavailable"], itertools.repeat("201 Created"))
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(f"HTTP/1.1 {next(statuses)}\r\ncontent-length: 2\r\n\r\nok".encode())
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(CheckFailed, match="answered otherwise"):
        await run_load([port], [request("POST", "/")], Effort(0.1, 1, 1), wanted=201)
    server.close()


async def test_a_second_process_has_its_own_ports_and_otherwise_the_settings_of_the_first(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, int]] = []

    async def serve(trial: Trial, name: str, command: list[str], port: int, environment: dict[str, str]) -> None:
        started.append((name, port))
        trial.environments[name] = environment
        assert command == ["onsale", "serve", "queue"]

    monkeypatch.setattr(Trial, "serve", serve)
    first = {"QUEUE_PORT": "1", "QUEUE_INTERNAL_PORT": "2", "ONSALE_QUEUE_URL": "http://one:2", "ONSALE_REDIS_URL": "x"}
    trial.environments["queue"] = first
    port = await system.serve_another(trial, "queue", {"QUEUE_TICK_S": "0.5"})
    second = trial.environments["queue-2"]
    assert started == [("queue-2", port)]
    assert second["QUEUE_PORT"] == str(port)
    assert len({*first.values(), *second.values()}) == 8, "its addresses and the given setting are new"
    assert second["ONSALE_QUEUE_URL"].endswith(f":{second['QUEUE_INTERNAL_PORT']}")


def test_speed_and_cost_are_claimed_against_one_process() -> None:
    def process_costs(processes: str, per_second: float, us: float) -> ProcessCosts:
        return ProcessCosts("join", "gateway", processes, [Cost(LoadSummary(10, per_second, 5.0), {"gateway": us})])

    [claim] = claims([process_costs("1 gateway", 1000, 80), process_costs("2 gateways", 1500, 90)])
    assert (claim.what, claim.ratio) == ("join, 2 gateways", "1.50 ×")
    assert claim.ours == "1,500/s, 90 µs of gateway each"
    assert claim.beside == "1 gateway 1,000/s, 80 µs"
    row = process_costs("1 gateway", 1000, 80).row()
    assert len(row) == len(HEADINGS) == len(_section_row())
    assert dict(zip(HEADINGS, row, strict=True))["cores in all"] == "0.08"


def test_listeners_are_always_divided_into_two_groups_of_different_fans() -> None:
    first, second = halves([ListenerGroup("ours", 1, "/x", 7)])
    assert (first.count, second.count, second.first) == (3, 4, 3)
    assert halves([first, second]) == [first, second]
