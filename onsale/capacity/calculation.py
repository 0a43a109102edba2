"""Calculates what a sale needs: processes, cores, bytes and sockets. Each is a rate times its measured cost.

A service gets what the harder of its two moments needs; a process uses at most the share `busy` of a core.
"""

import math
from collections.abc import Mapping

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.limits import limits, untested
from onsale.capacity.resources import (
    DatabaseResources,
    NetworkResources,
    Plan,
    RedisResources,
    ServiceResources,
    StreamResources,
)
from onsale.capacity.sale import Moment, Sale, frame_bytes, moments, over_sale

US_PER_S, KIB = 1_000_000, 1024
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier")
WRITERS, STORED = ("queue", "inventory", "orders"), ("join", "hold", "order")


def plan_sale(sale: Sale, known: Coefficients) -> Plan:
    """The plan for this sale."""
    both = moments(sale, known)
    processes: dict[str, int] = {}
    services = tuple(_service(name, sale, both, known, processes) for name in SERVICES)
    redis = _redis(sale, both, known, ticking=ticking_cores(processes["queue"], known))
    connected = sum(processes[name] for name in WRITERS) * known["postgres_pool_max"]
    database, network = _database(sale, both, known, connections=int(connected)), _network(sale, both[1], known)
    needs = {
        "redis": max(redis.cores_rush, redis.cores_height),
        "uplink": network.gbit_per_s,
        "postgres": max(database.cores_rush, database.cores_height),
        "connections": connected,
        "provider": sale.rate_per_s * sale.buying * known["provider_calls_per_order"],
    }
    streams = _streams(sale, both[1], known, processes["notifier"])
    reached, beyond = limits(needs, known), untested(both, known)
    return Plan(
        sale, both, services=services, streams=streams, redis=redis, database=database, network=network, limits=reached,
        untested=beyond, over_sale=over_sale(sale, known),
    )  # fmt: skip


def processor_s(operations: Mapping[str, float], name: str, known: Coefficients) -> float:
    """Processor seconds of a service or a database for these operations; for those of a second: cores kept busy."""
    return sum(operations[operation] * us for operation, us in known.costs_of(name).items()) / US_PER_S


def whole_s(sale: Sale, name: str, known: Coefficients) -> float:
    """Processor seconds for the whole sale. Measured costs are those of full processes; with a quarter of the work they
    make smaller batches, and a fan costs as much more. The gateway answers one by one, from memory, at any time.
    """
    dearer = 1.0 if name == "gateway" else known["fan.few_ms"] / known["fan.many_ms"]
    return processor_s(over_sale(sale, known), name, known) * dearer


def ticking_cores(queues: int, known: Coefficients) -> float:
    """Every queue process ticks, whether anybody is called or not."""
    return queues * known["ticks_per_s"] * known["tick.no_calls"] / US_PER_S


def _service(
    name: str, sale: Sale, both: tuple[Moment, Moment], known: Coefficients, processes: dict[str, int]
) -> ServiceResources:
    """One service. `processes` has the numbers of the services before it, and gets its own."""
    rush, height = (processor_s(moment.per_s, name, known) for moment in both)
    needs = {"two, so that one may fail": known["processes_min"], "processor": max(rush, height) / sale.busy}
    if name == "queue":
        needs["batches of the gateways"] = processes["gateway"] / known["join_batches_in_flight_max"]
    if name == "notifier":
        needs["open streams"] = max(moment.streams for moment in both) / known["streams_max"]
    why = max(needs, key=lambda reason: math.ceil(needs[reason]))
    processes[name] = math.ceil(needs[why])
    spent_s = whole_s(sale, name, known)
    return ServiceResources(name, processes[name], why, cores_rush=rush, cores_height=height, whole_s=spent_s)


def _streams(sale: Sale, height: Moment, known: Coefficients, notifiers: int) -> StreamResources:
    return StreamResources(
        math.ceil(height.streams), math.ceil(height.streams / notifiers), height.per_s["frame"],
        frame_bytes(sale, known), height.streams * known["stream_kib"] / KIB,
    )  # fmt: skip


def _redis(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, ticking: float) -> RedisResources:
    """The event log is counted whole, although it is trimmed to its latest entries."""
    rush, height = (processor_s(moment.per_s, "valkey", known) + ticking for moment in both)
    return RedisResources(
        line_mib=sale.fans * known["place.bytes"] / KIB**2,
        holds_mib=(sale.max_active + sale.orders) * known["hold.kept_bytes"] / KIB**2,
        log_mib=_stored(sale, known, "log_bytes") / KIB**2,
        frames_mib=2 * known["frames.kept_bytes"] / KIB**2,
        cores_rush=rush,
        cores_height=height,
        whole_s=whole_s(sale, "valkey", known) + ticking * sale.open_s,
    )


def _database(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, connections: int) -> DatabaseResources:
    def written(unit: str) -> float:
        return max(
            sum(moment.per_s[operation] * known[f"{operation}.{unit}"] for operation in STORED) for moment in both
        )

    rush, height = (processor_s(moment.per_s, "postgres", known) for moment in both)
    disk = _stored(sale, known, "disk_bytes")
    return DatabaseResources(
        writes_per_s=written("rows"),
        wal_mib_per_s=written("wal_bytes") / KIB**2,
        connections=connections,
        cores_rush=rush,
        cores_height=height,
        whole_s=whole_s(sale, "postgres", known),
        disk_gib=disk / KIB**3,
    )


def _stored(sale: Sale, known: Coefficients, unit: str) -> float:
    """What all fans, holds and orders of the sale add up to."""
    counts = over_sale(sale, known)
    return sum(counts[operation] * known[f"{operation}.{unit}"] for operation in STORED)


def _network(sale: Sale, height: Moment, known: Coefficients) -> NetworkResources:
    """Every frame and answer travels in packets of its own; a browser's polls share its stream's connection."""
    around = known["packet_bytes"]
    frames = height.per_s["frame"] * (frame_bytes(sale, known) + around)
    answers = sum(height.per_s[what] * (known[f"{what}.bytes"] + around) for what in ("status", "read", "seats"))
    sockets = math.ceil(max(sale.fans, height.streams) + height.streams)
    return NetworkResources(frames * 8 / 1e9, answers * 8 / 1e9, sockets)
