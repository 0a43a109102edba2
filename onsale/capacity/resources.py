"""What a sale needs, as numbers: services, streams, databases, network, and how near each limit comes."""

from collections.abc import Mapping
from dataclasses import dataclass

from onsale.capacity.limits import Limit, Untested
from onsale.capacity.sale import Moment, Sale


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
