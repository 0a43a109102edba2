"""From a sale to processes, cores, bytes and sockets. Pure arithmetic: rates times what each was measured to cost.

A service gets what its harder moment asks for; cores are counted full, processes at the share `busy` of a core each.
"""

import math

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.limits import limits, untried
from onsale.capacity.needs import Database, Engine, Network, Plan, ServiceNeed, Streams
from onsale.capacity.sale import Moment, Sale, frame_bytes, moments

US_PER_S, KIB = 1_000_000, 1024
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier")
WRITERS, STORED = ("queue", "inventory", "orders"), ("join", "hold", "order")


def planned(sale: Sale, known: Coefficients) -> Plan:
    """What this sale needs."""
    both = moments(sale, known)
    processes: dict[str, int] = {}
    services = tuple(_service(name, sale, both, known, processes) for name in SERVICES)
    engine = _engine(sale, both, known, queues=processes["queue"])
    connected = sum(processes[name] for name in WRITERS) * known["postgres_pool_max"]
    database, network = _database(sale, both, known, connections=int(connected)), _network(sale, both[1], known)
    asked = {
        "engine": max(engine.cores_rush, engine.cores_height),
        "uplink": network.gbit_per_s,
        "ledger": max(database.cores_rush, database.cores_height),
        "connections": connected,
        "provider": sale.rate_per_s * sale.buying * known["provider_calls_per_order"],
    }
    streams = _streams(sale, both[1], known, processes["notifier"])
    reached, beyond = limits(asked, known), untried(both, known)
    return Plan(sale, both, services, streams, engine, database, network, reached, beyond)


def cores(moment: Moment, name: str, known: Coefficients) -> float:
    """Cores that a service or an engine keeps busy in this moment."""
    return sum(moment.per_s[operation] * us for operation, us in known.of(name).items()) / US_PER_S


def _service(
    name: str, sale: Sale, both: tuple[Moment, Moment], known: Coefficients, processes: dict[str, int]
) -> ServiceNeed:
    """One service; `processes` are those of the services before it, and then of it, too."""
    rush, height = (cores(moment, name, known) for moment in both)
    asked = {"two, so that one may fail": known["processes_min"], "processor": max(rush, height) / sale.busy}
    if name == "queue":
        asked["batches of the gateways"] = processes["gateway"] / known["join_batches_in_flight_max"]
    if name == "notifier":
        asked["open streams"] = max(moment.streams for moment in both) / known["streams_max"]
    why = max(asked, key=lambda reason: math.ceil(asked[reason]))
    processes[name] = math.ceil(asked[why])
    return ServiceNeed(name, processes[name], why, rush, height)


def _streams(sale: Sale, height: Moment, known: Coefficients, notifiers: int) -> Streams:
    return Streams(
        math.ceil(height.streams), math.ceil(height.streams / notifiers), height.per_s["frame"],
        frame_bytes(sale, known), height.streams * known["stream_kib"] / KIB,
    )  # fmt: skip


def _engine(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, queues: int) -> Engine:
    """Every queue process ticks. The log is counted whole, although it keeps only its latest entries."""
    a_call_us = (known["tick.fifty_calls"] - known["tick.no_calls"]) / 50
    ticking = (queues * known["ticks_per_s"] * known["tick.no_calls"] + sale.rate_per_s * a_call_us) / US_PER_S
    rush, height = (cores(moment, "valkey", known) + ticking for moment in both)
    return Engine(
        line_mib=sale.fans * known["place.bytes"] / KIB**2,
        holds_mib=(sale.max_active + sale.orders) * known["hold.kept_bytes"] / KIB**2,
        log_mib=_over_the_sale(sale, known, "log_bytes") / KIB**2,
        frames_mib=2 * known["frames.kept_bytes"] / KIB**2,
        cores_rush=rush,
        cores_height=height,
    )


def _database(sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, connections: int) -> Database:
    def written(unit: str) -> float:
        return max(
            sum(moment.per_s[operation] * known[f"{operation}.{unit}"] for operation in STORED) for moment in both
        )

    rush, height = (cores(moment, "postgres", known) for moment in both)
    disk = _over_the_sale(sale, known, "disk_bytes")
    return Database(written("rows"), written("wal_bytes") / KIB**2, connections, rush, height, disk / KIB**3)


def _over_the_sale(sale: Sale, known: Coefficients, unit: str) -> float:
    """What all fans, holds and orders leave behind."""
    counts = {"join": sale.fans, "hold": sale.admissions * known["holds_per_admission"], "order": sale.orders}
    return sum(count * known[f"{operation}.{unit}"] for operation, count in counts.items())


def _network(sale: Sale, height: Moment, known: Coefficients) -> Network:
    """Every frame and answer travels in packets of its own; a browser's polls share its stream's connection."""
    around = known["packet_bytes"]
    frames = height.per_s["frame"] * (frame_bytes(sale, known) + around)
    answers = sum(height.per_s[what] * (known[f"{what}.bytes"] + around) for what in ("status", "seats"))
    sockets = math.ceil(max(sale.fans, height.streams) + height.streams)
    return Network(frames * 8 / 1e9, answers * 8 / 1e9, sockets)
