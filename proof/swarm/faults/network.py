"""Faults of connections: between a service and PostgreSQL, Redis, another service or the payment provider."""

import asyncio
from collections.abc import Collection

from proof.swarm.faults.fault import Fault, Link
from proof.swarm.site import Site
from tests.support.engines.tcp_proxy import Mode, TcpProxy

CALLEES = {
    "gateway": ("redis", "queue", "inventory"),
    "queue": ("redis", "postgres", "inventory"),
    "inventory": ("redis", "postgres", "queue", "orders"),
    "orders": ("redis", "postgres", "inventory", "sandbox"),
    "notifier": ("redis", "queue", "orders"),
}
LINKS = [Link(caller, callee) for caller, callees in CALLEES.items() for callee in callees]
NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sandbox": "the payment provider"}


class _OfALink(Fault):
    words = ""
    longest_s = 8.0

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [str(link) for link in LINKS]

    @classmethod
    def what(cls, target: str) -> str:
        callee = Link.parse(target).callee
        return f"connections to {NAMES.get(callee, callee)} {cls.words}"

    @classmethod
    def link(cls, target: str) -> Link | None:
        return Link.parse(target)

    def proxy(self, site: Site) -> TcpProxy:
        return site.proxies[Link.parse(self.target)]


class _InAMode(_OfALink):
    mode: Mode

    async def begin(self, site: Site) -> None:
        self.proxy(site).set_mode(self.mode)

    async def end(self, site: Site) -> None:
        """Old connections, whose bytes have a gap, end."""
        self.proxy(site).set_mode("resets")
        await asyncio.sleep(0.1)
        self.proxy(site).set_mode("passes")


class HalfOpen(_InAMode):
    words, mode = "half-open", "swallows"


class AnswersLost(_InAMode):
    words, mode = "lose what comes back", "answers lost"


class Refused(_InAMode):
    words, mode = "reset and refused", "resets"


class ResetAgainAndAgain(_OfALink):
    words = "reset again and again"

    async def begin(self, site: Site) -> None:
        self._repeating = asyncio.create_task(self._repeat(self.proxy(site)))

    async def _repeat(self, proxy: TcpProxy) -> None:
        while True:
            proxy.set_mode("resets")
            await asyncio.sleep(0.03)
            proxy.set_mode("passes")
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))

    async def end(self, site: Site) -> None:
        self._repeating.cancel()
        await asyncio.wait([self._repeating])
        self.proxy(site).set_mode("passes")


class Delayed(_InAMode):
    words = "delayed"

    async def begin(self, site: Site) -> None:
        self.proxy(site).set_delay(self.rng.choice((0.05, 0.3, 1.5)))

    async def end(self, site: Site) -> None:
        self.proxy(site).set_mode("resets")
        await asyncio.sleep(0.1)
        self.proxy(site).set_delay(0)
        self.proxy(site).set_mode("passes")


class CommitAnswersLost(_OfALink):
    """PostgreSQL commits, and the answer to the next commits is lost with the connection."""

    words = "lost after a commit"

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return [str(link) for link in LINKS if link.callee == "postgres"]

    async def begin(self, site: Site) -> None:
        self.proxy(site).lose_next = self.rng.choice((1, 3, 10))

    async def end(self, site: Site) -> None:
        self.proxy(site).lose_next = 0
