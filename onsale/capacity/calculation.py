"""Calculates what a sale needs: processes, cores, bytes and sockets. Each is a rate times its measured cost.

A service gets what the harder of its two moments needs; a process uses at most the share `busy` of a core.
"""

import math

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
from onsale.capacity.sale import Moment, Sale, frame_bytes, moments

US_PER_S, KIB = 1_000_000, 1024
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier")
WRITERS, STORED = ("queue", "inventory", "orders"), ("join", "hold", "order")


def plan_sale(sale: Sale, known: Coefficients) -> Plan:
    """The plan for this sale."""
    both = moments(sale, known)
    processes: dict[str, int] = {}
    services = tuple(_service(name, sale, both, known, processes) for name in SERVICES)
    redis = _redis(sale, both, known, queues=processes["queue"])
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
        untested=beyond,
    )  # fmt: skip


def cores_used(moment: Moment, name: str, known: Coefficients) -> float:
    """Cores that a service or a database keeps busy in this moment."""
    return sum(moment.per_s[operation] * us for operation, us in known.costs_of(name).items()) / US_PER_S


def _service(
    name: str, sale: Sale, both: tuple[Moment, Moment], known: Coefficients, processes: dict[str, int]
) -> ServiceResources:
    """One service. `processes` has the numbers of the services before it, and gets its own."""
    rush, height = (cores_used(moment, name, known) for moment in both)
    needs = {"two, so that one may fail": known["processes_min"], "processor": max(rush, height) / sale.busy}
    if name == "queue":
        needs["batches of the gateways"] = processes["gateway"] / known["join_batches_in_flight_max"]
    if name == "notifier":
        needs["open streams"] = max(moment.streams for moment in both) / known["streams_max"]
    why = max(needs, key=lambda reason: math.ceil(needs[reason]))
    processes[name] = math.ceil(needs[why])
    return ServiceResources(name, processes[name], why, rush, height)


def _streams(sale: Sale, height: Moment, known: Coefficients, notifiers: int) -> StreamResources:
    return StreamResources(
        math.ceil(height.streams), math.ceil(height.streams / notifiers), height.per_s["frame"],
        frame_bytes(sale, known), height.streams * known["stream_kib"] / KIB,
    )  # fmt: skip


def _redis(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, queues: int) -> RedisResources:
    """Every queue process ticks. The event log is counted whole, although it is trimmed to its latest entries."""
    a_call_us = (known["tick.fifty_calls"] - known["tick.no_calls"]) / 50
    ticking = (queues * known["ticks_per_s"] * known["tick.no_calls"] + sale.rate_per_s * a_call_us) / US_PER_S
    rush, height = (cores_used(moment, "valkey", known) + ticking for moment in both)
    return RedisResources(
        line_mib=sale.fans * known["place.bytes"] / KIB**2,
        holds_mib=(sale.max_active + sale.orders) * known["hold.kept_bytes"] / KIB**2,
        log_mib=_total_over_sale(sale, known, "log_bytes") / KIB**2,
        frames_mib=2 * known["frames.kept_bytes"] / KIB**2,
        cores_rush=rush,
        cores_height=height,
    )


def _database(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, connections: int) -> DatabaseResources:
    def written(unit: str) -> float:
        return max(
            sum(moment.per_s[operation] * known[f"{operation}.{unit}"] for operation in STORED) for moment in both
        )

    rush, height = (cores_used(moment, "postgres", known) for moment in both)
    disk = _total_over_sale(sale, known, "disk_bytes")
    return DatabaseResources(
        writes_per_s=written("rows"),
        wal_mib_per_s=written("wal_bytes") / KIB**2,
        connections=connections,
        cores_rush=rush,
        cores_height=height,
        disk_gib=disk / KIB**3,
    )


def _total_over_sale(sale: Sale, known: Coefficients, unit: str) -> float:
    """What all fans, holds and orders of the sale add up to."""
    counts = {"join": sale.fans, "hold": sale.admissions * known["holds_per_admission"], "order": sale.orders}
    return sum(count * known[f"{operation}.{unit}"] for operation, count in counts.items())


def _network(sale: Sale, height: Moment, known: Coefficients) -> NetworkResources:
    """Every frame and answer travels in packets of its own; a browser's polls share its stream's connection."""
    around = known["packet_bytes"]
    frames = height.per_s["frame"] * (frame_bytes(sale, known) + around)
    answers = sum(height.per_s[what] * (known[f"{what}.bytes"] + around) for what in ("status", "seats"))
    sockets = math.ceil(max(sale.fans, height.streams) + height.streams)
    return NetworkResources(frames * 8 / 1e9, answers * 8 / 1e9, sockets)
