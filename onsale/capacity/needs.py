"""What a sale needs, as numbers: services, streams, engines, network, and how near each limit comes."""

from dataclasses import dataclass

from onsale.capacity.limits import Limit, Untried
from onsale.capacity.sale import Moment, Sale


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
    connections: int
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
    def working(self) -> tuple[ServiceNeed | Engine | Database, ...]:
        """Who keeps cores busy."""
        return (*self.services, self.engine, self.database)

    @property
    def cores(self) -> float:
        """Busy cores of services and engines in the harder moment."""
        return max(sum(one.cores_rush for one in self.working), sum(one.cores_height for one in self.working))

    @property
    def processes(self) -> int:
        return sum(service.processes for service in self.services)
