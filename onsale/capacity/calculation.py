"""Calculates what a sale needs: processes, cores, bytes and sockets. Each is a rate times its measured cost.

A service gets what the harder of its two moments needs; a process uses at most the share `busy` of a core.

What a sale needs, as numbers: services, streams, databases, network, and how near each limit comes.

Limits are of resources that one event cannot have twice, with what helps. Untested are operations of which the sale
needs more at once than any measurement had.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onsale.capacity.sale import Coefficients, Moment, Sale, frame_bytes, moments, over_sale

RESOURCES = {
    "redis": ("the Redis that has the event", "cores", "arrivals spread by a pre-queue (--first-minute), a longer "
               "room.liveness_window_s (--liveness-s); one event is one hash slot: more nodes help only other events"),
    "uplink": ("the uplink to the fans", "Gbit/s", "a longer room.updates.window_ms (--window-ms), more uplinks"),
    "postgres": ("PostgreSQL", "cores", "a database per service, a pre-queue that spreads arrivals (--first-minute)"),
    "connections": ("connections to PostgreSQL", "", "PgBouncer, a smaller ONSALE_POSTGRES_POOL_MAX"),
    "provider": ("the payment provider", "calls/s", "more minutes, several providers, a higher limit by contract"),
}  # fmt: skip


TESTED_OPERATIONS = {
    "joins a second": "join",
    "holds a second": "hold",
    "orders a second": "order",
    "polls a second": "status",
    "signs of life a second": "sign",
}


@dataclass(frozen=True)
class Limit:
    """How much of a single resource the sale needs; a `share` above 1 is too much."""

    name: str
    needed: float
    limit: float
    unit: str
    remedy: str

    @property
    def share(self) -> float:
        return self.needed / self.limit


@dataclass(frozen=True)
class Untested:
    """Something the plan relies on that was measured only up to a smaller number."""

    name: str
    planned: float
    tested: float


def limits(needs: Mapping[str, float], known: Coefficients) -> tuple[Limit, ...]:
    """All limits; the one that breaks first stands first."""
    every = [
        Limit(RESOURCES[part][0], amount, known[f"{part}.limit"], *RESOURCES[part][1:])
        for part, amount in needs.items()
    ]
    return tuple(sorted(every, key=lambda limit: -limit.share))


def untested(both: tuple[Moment, Moment], known: Coefficients) -> tuple[Untested, ...]:
    """Operations of which the larger of both moments needs more than was measured."""
    needs = {
        name: (max(moment.per_s[operation] for moment in both), known[f"{operation}.tried_per_s"])
        for name, operation in TESTED_OPERATIONS.items()
    }
    needs["places in one line"] = (max(moment.waiting for moment in both), known["places_tried"])
    needs["open streams"] = (max(moment.streams for moment in both), known["streams_tried"])
    return tuple(Untested(name, needed, tested) for name, (needed, tested) in needs.items() if needed > tested)


@dataclass(frozen=True)
class ServiceResources:
    """Processes of one service, what decides their number, the cores they keep busy in each moment, and their processor
    seconds over the whole sale.
    """

    name: str
    processes: int
    decided_by: str
    cores_rush: float
    cores_height: float
    whole_s: float


@dataclass(frozen=True)
class StreamResources:
    """Open streams at the height, how many of them one notifier process holds, and the frames they receive."""

    open: int
    per_process: int
    frames_per_s: float
    frame_bytes: float
    memory_mib: float


@dataclass(frozen=True)
class RedisResources:
    """Redis or Valkey: memory by what it is for, and the cores of the one process that has the event."""

    line_mib: float
    holds_mib: float
    log_mib: float
    frames_mib: float
    cores_rush: float
    cores_height: float
    whole_s: float

    @property
    def memory_mib(self) -> float:
        return self.line_mib + self.holds_mib + self.log_mib + self.frames_mib


@dataclass(frozen=True)
class DatabaseResources:
    """PostgreSQL, all databases together: what is written in the harder moment, and what is on disk after the sale."""

    writes_per_s: float
    wal_mib_per_s: float
    connections: int
    cores_rush: float
    cores_height: float
    whole_s: float
    disk_gib: float


@dataclass(frozen=True)
class NetworkResources:
    """Towards the fans: Gbit/s of frames and of answers at the height, and sockets at the balancers."""

    frames_gbit_per_s: float
    answers_gbit_per_s: float
    sockets: int

    @property
    def gbit_per_s(self) -> float:
        return self.frames_gbit_per_s + self.answers_gbit_per_s


@dataclass(frozen=True)
class Plan:
    """The whole plan; the first of `limits` is reached first. `over_sale` counts the operations of the whole sale."""

    sale: Sale
    moments: tuple[Moment, Moment]
    services: tuple[ServiceResources, ...]
    streams: StreamResources
    redis: RedisResources
    database: DatabaseResources
    network: NetworkResources
    limits: tuple[Limit, ...]
    untested: tuple[Untested, ...]
    over_sale: Mapping[str, float]

    @property
    def core_users(self) -> tuple[ServiceResources | RedisResources | DatabaseResources, ...]:
        """The parts that keep cores busy."""
        return (*self.services, self.redis, self.database)

    @property
    def cores(self) -> float:
        """Busy cores of services and databases in the harder moment."""
        return max(sum(one.cores_rush for one in self.core_users), sum(one.cores_height for one in self.core_users))

    @property
    def whole_s(self) -> float:
        """Processor seconds of services and databases over the whole sale."""
        return sum(one.whole_s for one in self.core_users)

    @property
    def processes(self) -> int:
        return sum(service.processes for service in self.services)


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
