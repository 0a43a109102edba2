"""From a sale to processes, cores, bytes and sockets. Pure arithmetic: rates times what each was measured to cost.

A service gets what its harder moment asks for; cores are counted full, processes at the share `busy` of a core each.
"""

import math
from dataclasses import dataclass

from onsale.plan.coefficients import Coefficients
from onsale.plan.limits import Limit, Untried, limits, untried
from onsale.plan.sale import Moment, Sale, frame_bytes, moments

US_PER_S, KIB = 1_000_000, 1024
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier")
STORED = ("join", "hold", "order")


@dataclass(frozen=True)
class ServiceNeed:
    """Processes of one service, what decides their number, and the cores they keep busy in each moment."""

    name: str
    processes: int
    decided_by: str
    cores_rush: float
    cores_height: float


@dataclass(frozen=True)
class Streams:
    """Open streams at the height, how many of them one notifier process holds, and what they are told."""

    open: int
    per_process: int
    frames_per_s: float
    frame_bytes: float
    memory_mib: float


@dataclass(frozen=True)
class Engine:
    """Redis or Valkey: memory by what it is for, and the cores of the one process that has the event."""

    line_mib: float
    holds_mib: float
    log_mib: float
    frames_mib: float
    cores_rush: float
    cores_height: float

    @property
    def memory_mib(self) -> float:
        return self.line_mib + self.holds_mib + self.log_mib + self.frames_mib


@dataclass(frozen=True)
class Database:
    """PostgreSQL, all databases together: what is written in the harder moment, and what is on disk after the sale."""

    writes_per_s: float
    wal_mib_per_s: float
    cores_rush: float
    cores_height: float
    disk_gib: float


@dataclass(frozen=True)
class Network:
    """Towards the fans: Gbit/s of frames and of answers at the height, and sockets at the balancers."""

    frames_gbit_per_s: float
    answers_gbit_per_s: float
    sockets: int

    @property
    def gbit_per_s(self) -> float:
        return self.frames_gbit_per_s + self.answers_gbit_per_s


@dataclass(frozen=True)
class Plan:
    """Everything; `limits` with the one first that is reached first."""

    sale: Sale
    moments: tuple[Moment, Moment]
    services: tuple[ServiceNeed, ...]
    streams: Streams
    engine: Engine
    database: Database
    network: Network
    limits: tuple[Limit, ...]
    untried: tuple[Untried, ...]

    @property
    def cores(self) -> float:
        """Busy cores of services and engines in the harder moment."""
        parts = (*self.services, self.engine, self.database)
        return max(sum(part.cores_rush for part in parts), sum(part.cores_height for part in parts))

    @property
    def processes(self) -> int:
        return sum(service.processes for service in self.services)


def planned(sale: Sale, known: Coefficients) -> Plan:
    """What this sale needs."""
    both = moments(sale, known)
    services = tuple(_service(name, sale, both, known) for name in SERVICES)
    engine = _engine(sale, both, known, queues=services[SERVICES.index("queue")].processes)
    database, network = _database(sale, both, known), _network(sale, both[1], known)
    reached = limits(
        sale, both, known,
        engine=max(engine.cores_rush, engine.cores_height),
        ledger=max(database.cores_rush, database.cores_height),
        gbit_per_s=network.gbit_per_s,
    )  # fmt: skip
    notifiers = services[SERVICES.index("notifier")].processes
    streams = _streams(sale, both[1], known, notifiers)
    return Plan(sale, both, services, streams, engine, database, network, reached, untried(both, known))


def cores(moment: Moment, name: str, known: Coefficients) -> float:
    """Cores that a service or an engine keeps busy in this moment."""
    return sum(moment.per_s[operation] * us for operation, us in known.of(name).items()) / US_PER_S


def _service(name: str, sale: Sale, both: tuple[Moment, Moment], known: Coefficients) -> ServiceNeed:
    rush, height = (cores(moment, name, known) for moment in both)
    asked = {"two, so that one may fail": known["processes_min"], "processor": max(rush, height) / sale.busy}
    if name == "notifier":
        asked["open streams"] = max(moment.streams for moment in both) / known["streams_max"]
        asked["new streams"] = max(moment.opened_per_s for moment in both) / known["streams_new_per_s"]
    why = max(asked, key=lambda reason: math.ceil(asked[reason]))
    return ServiceNeed(name, math.ceil(asked[why]), why, rush, height)


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


def _database(sale: Sale, both: tuple[Moment, Moment], known: Coefficients) -> Database:
    def written(unit: str) -> float:
        return max(
            sum(moment.per_s[operation] * known[f"{operation}.{unit}"] for operation in STORED) for moment in both
        )

    rush, height = (cores(moment, "postgres", known) for moment in both)
    disk = _over_the_sale(sale, known, "disk_bytes")
    return Database(written("rows"), written("wal_bytes") / KIB**2, rush, height, disk / KIB**3)


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
