"""Faults of single processes: services, Valkey, the payment provider. A killed one is started again at the end."""

import asyncio
import signal
import socket
import subprocess
from collections.abc import Collection

from onsale.local.ports import HOST
from proof.swarm.faults.fault import Fault, service_of
from proof.swarm.site import Site
from shared.routes import SALE_SERVICES

DESCRIPTORS_MORE = 3
CLIENTS = 30


class _OfAProcess(Fault):
    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [name for name in programs if service_of(name) in SALE_SERVICES]


class Killed(_OfAProcess):
    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [*super().targets(programs), "valkey", "sandbox"]

    @classmethod
    def what(cls, target: str) -> str:
        return f"{service_of(target)} killed (SIGKILL)"

    async def begin(self, site: Site) -> None:
        await asyncio.to_thread(site.fleet.programs[self.target].end, signal.SIGKILL)

    async def end(self, site: Site) -> None:
        await site.start_again(self.target)


class Stopped(Killed):
    """Stopped by its supervisor, as in a restart: it finishes what it does."""

    @classmethod
    def what(cls, target: str) -> str:
        return f"{service_of(target)} stopped (SIGTERM)"

    async def begin(self, site: Site) -> None:
        site.fleet.programs[self.target].send(signal.SIGTERM)

    async def end(self, site: Site) -> None:
        await asyncio.to_thread(site.fleet.programs[self.target].end, signal.SIGTERM, within_s=30)
        await site.start_again(self.target)


class Frozen(Killed):
    longest_s = 9.0

    @classmethod
    def what(cls, target: str) -> str:
        return f"{service_of(target)} frozen (SIGSTOP)"

    async def begin(self, site: Site) -> None:
        site.fleet.programs[self.target].send(signal.SIGSTOP)

    async def end(self, site: Site) -> None:
        site.fleet.programs[self.target].send(signal.SIGCONT)


class OtherVersion(_OfAProcess):
    """Restarted as the newest commit whose services spoke otherwise with each other, and back: two versions sell side
    by side on today's tables.
    """

    needs = "history"
    shortest_s, longest_s = 5.0, 12.0

    @classmethod
    def what(cls, target: str) -> str:
        return f"{service_of(target)} restarted as another version"

    async def begin(self, site: Site) -> None:
        program = site.fleet.programs[self.target]
        self._env, earlier = program.env or {}, {"PYTHONPATH": str(site.earlier_code)}
        await self._restart(site, self._env | earlier)

    async def end(self, site: Site) -> None:
        program = site.fleet.programs[self.target]
        assert program.is_running, f"the other version has ended by itself: {program.log_tail()}"
        await self._restart(site, self._env)

    async def _restart(self, site: Site, env: dict[str, str]) -> None:
        program = site.fleet.programs[self.target]
        await asyncio.to_thread(program.end, signal.SIGTERM, within_s=30)
        program.env = env
        await site.start_again(self.target)


class NoDescriptors(_OfAProcess):
    needs = "prlimit"

    @classmethod
    def what(cls, target: str) -> str:
        return f"{service_of(target)}: file descriptors exhausted"

    async def begin(self, site: Site) -> None:
        self._before = self._limits(site)
        in_use = len(list(site.proc(self.target).joinpath("fd").iterdir()))
        self._set(site, f"{in_use + self.rng.randrange(DESCRIPTORS_MORE)}:")

    async def end(self, site: Site) -> None:
        self._set(site, f"{self._before}:")

    def _limits(self, site: Site) -> str:
        rows = site.proc(self.target).joinpath("limits").read_text().splitlines()
        return next(row.split()[3] for row in rows if row.startswith("Max open files"))

    def _set(self, site: Site, limit: str) -> None:
        pid = site.fleet.programs[self.target].process.pid
        subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={limit}"], check=True)


class ClockStep(Fault):
    """The clock of one process is wrong by up to two minutes, and right again."""

    needs = "libfaketime"
    longest_s = 8.0
    steps_s = (-120, -45, -10, 10, 45, 120)

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [*(name for name in programs if service_of(name) in SALE_SERVICES), "valkey", "postgres"]

    @classmethod
    def what(cls, target: str) -> str:
        return f"clock of {service_of(target)} set"

    @classmethod
    def clock(cls, target: str) -> str | None:
        return target

    async def begin(self, site: Site) -> None:
        site.clocks[self.target].set(self.rng.choice(self.steps_s))

    async def end(self, site: Site) -> None:
        site.clocks[self.target].set(0)


class ClientsVanish(_OfAProcess):
    """Browsers with half a request or an open stream are gone from one moment to the next (RST)."""

    @classmethod
    def what(cls, target: str) -> str:
        return f"clients of {service_of(target)} vanish"

    async def begin(self, site: Site) -> None:
        self._sockets = [self._open(site) for _ in range(CLIENTS)]

    async def end(self, site: Site) -> None:
        for client in self._sockets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.close()

    def _open(self, site: Site) -> socket.socket:
        event = f"/events/{site.event_id}"
        requests = (
            f"GET {event}/sections/updates HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n",
            f"GET {event}/sections HTTP/1.1\r\nhost: a\r\n\r\n" * 20,
            f"POST {event}/queue HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{",
            f"GET {event}/sections HTTP/1.1\r\nho",
        )
        client = socket.socket()
        client.settimeout(1)
        try:
            client.connect((HOST, site.port(self.target)))
            client.sendall(self.rng.choice(requests).encode())
        except OSError:
            pass  # that process is away
        return client
