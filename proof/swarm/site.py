"""Where a trial happens: PostgreSQL, Valkey and a fleet of its own, other people's servers, and proxies and clocks
between them as far as the plan's faults need them.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onsale.history.transport import History
from onsale.local.binaries import find_postgres
from onsale.local.ports import HOST
from onsale.local.postgres import DATABASE
from proof.drills.fleet import Fleet, migrate
from proof.drills.postgres_pair import Postgres, address
from proof.drills.redis.test_clock_steps import BUNDLED_VALKEY, Clock
from proof.swarm.edges import ALWAYS
from proof.swarm.faults.fault import Fault, Link, service_of
from proof.upgrades.history import commit_before, unpacked
from tests.orders.shop import Mailbox
from tests.support.engines.engines import fast_directory
from tests.support.engines.tcp_proxy import TcpProxy
from tests.support.providers.receiver import Receiver
from tests.support.running.program import ForkedProgram, Program

if TYPE_CHECKING:
    from proof.swarm.plan import Plan  # which knows every fault, as each fault knows this module

DISK_BYTES = 500_000_000
EVENT_ID = "swarm"
CALLEE_URLS = {
    "redis": "ONSALE_REDIS_URL", "postgres": "ONSALE_POSTGRES_URL", "sandbox": "ONSALE_SANDBOX_URL",
    "queue": "ONSALE_QUEUE_URL", "inventory": "ONSALE_INVENTORY_URL", "orders": "ONSALE_ORDERS_URL",
}  # fmt: skip


class ForkedFleet(Fleet):
    program_class = ForkedProgram


class PostgresTemplate:
    """A stopped cluster with migrated tables, of which each trial gets a copy."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "template"

    async def make(self) -> "PostgresTemplate":
        postgres = Postgres(self.home, find_postgres(os.environ, major=None))
        try:
            await postgres.create()
            await postgres.query(f"CREATE DATABASE {DATABASE}", database="postgres")
            await migrate({"ONSALE_POSTGRES_URL": address(f"{HOST}:{postgres.port}")})
        finally:
            await asyncio.to_thread(postgres.end, signal.SIGINT)
        return self


class Site:
    """All that runs in one trial. `began_s` is when fans began to arrive, by the monotonic clock."""

    def __init__(self, plan: "Plan", faults: list[Fault], folder: Path, template: PostgresTemplate) -> None:
        self.plan, self.event_id = plan, EVENT_ID
        self.folder, self.ours = folder / "theirs", folder / "ours"  # only theirs can be full
        self.began_s = time.monotonic()
        self.notes: list[str] = []
        self.receiver, self.mail = Receiver(), Mailbox()
        self._mail_server = AsyncExitStack()
        self._locks: dict[str, asyncio.Lock] = {}
        self._stack, self._open = ExitStack(), AsyncExitStack()
        stepped = {name for fault in faults if (name := fault.clock(fault.target))}
        self.clocks = {name: Clock(self.ours / f"{name}.clock") for name in sorted(stepped)}
        self._links = sorted({link for fault in faults if (link := fault.link(fault.target))})
        self.proxies: dict[Link, TcpProxy] = {}
        shutil.copytree(template.home, self.folder / "postgres")
        self.postgres = Postgres(self.folder / "postgres", find_postgres(os.environ, major=None), max_connections="150")
        self.postgres_url = address(f"{HOST}:{self.postgres.port}")
        self.fleet = self._fleet()
        if any(fault.needs == "history" for fault in faults):
            self.earlier_code = unpacked(commit_before(), template.home.parent)
        self.history = self.fleet.history = History(self.ours / "history.jsonl")
        self.sandbox_url = self.fleet.urls["sandbox"]
        for name, clock in self.clocks.items():
            program = self.postgres if name == "postgres" else self.fleet.programs[name]
            program.env |= clock.env

    def _fleet(self) -> Fleet:
        data_dir = self.folder / "data"
        environ = ALWAYS | {"ONSALE_SANDBOX_BOOKS_PATH": str(self.folder / "books.jsonl")} | self.plan.settings
        fleet = ForkedFleet(data_dir, self.postgres_url, copies=self.plan.copies, environ=environ)  # type: ignore[arg-type]
        if "valkey" in self.clocks:
            fleet.valkey.command[0] = str(BUNDLED_VALKEY)
        return fleet

    def say(self, note: str) -> None:
        """Keeps a note of what happened, with its time."""
        self.notes.append(f"{time.monotonic() - self.began_s:6.2f} s  {note}")

    def port(self, name: str) -> int:
        return self.fleet._port(name)

    def proc(self, name: str) -> Path:
        return Path(f"/proc/{self.fleet.programs[name].process.pid}")

    async def query(self, statement: str, *values: object) -> list[Any]:
        return await self.postgres.query(statement, *values)

    async def start_postgres(self) -> None:
        """Waits for the processes of a killed predecessor, whose memory nobody may use any more."""
        for _ in range(100):
            self.postgres.start()
            while self.postgres.is_running:
                if await self.postgres.answers():
                    return
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.1)
        raise AssertionError(f"PostgreSQL does not start: {self.postgres.log_tail()}")

    async def start_again(self, name: str) -> None:
        """Starts a process that has ended. Of Valkey, which faults command, it also waits for an answer."""
        self.fleet.programs[name].start()
        if name == "valkey":
            await asyncio.to_thread(self.fleet.valkey.wait)

    @asynccontextmanager
    async def alone_with(self, things: Collection[str]) -> AsyncIterator[None]:
        """No other fault touches these things meanwhile: an end may take longer than planned."""
        async with AsyncExitStack() as stack:
            for thing in sorted(things):
                await stack.enter_async_context(self._locks.setdefault(thing, asyncio.Lock()))
            yield

    async def open_mail(self) -> None:
        await self._mail_server.enter_async_context(self.mail.open())

    async def close_mail(self) -> None:
        await self._mail_server.aclose()

    async def __aenter__(self) -> "Site":
        try:
            await self.start_postgres()
            await self.open_mail()
            await self._open.enter_async_context(self.receiver.listening("/hooks"))
            self._connect()
            self.fleet.start()
            await asyncio.to_thread(self.fleet.wait_until_ready)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def _connect(self) -> None:
        """Gives each process the addresses it uses: proxies where the plan has faults, and one of several copies."""
        for link in self._links:
            self.proxies[link] = self._stack.enter_context(TcpProxy(self._callee_url(link)))
        for name, program in self.fleet.programs.items():
            assert program.env is not None
            program.env["ORDERS_SMTP_URL"] = self.mail.url
            for link, proxy in self.proxies.items():
                if link.caller == service_of(name):
                    program.env[CALLEE_URLS[link.callee]] = proxy.url

    def _callee_url(self, link: Link) -> str:
        env = self.fleet.programs[link.caller].env
        assert env is not None
        return env[CALLEE_URLS[link.callee]]

    async def __aexit__(self, *_: object) -> None:
        self.fleet.end()
        self._stack.close()
        await self._mail_server.aclose()
        await self._open.aclose()
        if self.postgres.is_running:
            self.postgres.lose()

    def processes(self) -> Iterator[tuple[str, Program]]:
        """The services' processes."""
        for name, program in self.fleet.programs.items():
            if name not in ("valkey", "sandbox"):
                yield name, program

    def tracebacks(self) -> Iterator[tuple[str, str]]:
        """Log lines of services with an exception that nobody expected."""
        for name, program in self.processes():
            for line in program.log_text().splitlines():
                if "Traceback" in line or '"exception"' in line:
                    yield name, line


@contextmanager
def trial_folder(*, small: bool) -> Iterator[Path]:
    """A folder in memory, for us and for them; with `small` theirs has a file system of its own, which can be full."""
    with tempfile.TemporaryDirectory(prefix="onsale-swarm-", dir=fast_directory()) as name, ExitStack() as stack:
        ours, theirs = Path(name) / "ours", Path(name) / "theirs"
        ours.mkdir()
        theirs.mkdir()
        if small:
            options = f"size={DISK_BYTES},mode=755"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", theirs], check=True)
            stack.callback(partial(subprocess.run, ["umount", "-l", theirs], check=True))
        yield Path(name)


@asynccontextmanager
async def site_of(plan: "Plan", faults: list[Fault], template: PostgresTemplate) -> AsyncIterator[Site]:
    with trial_folder(small=any(fault.needs == "mount" for fault in faults)) as folder:
        async with Site(plan, faults, folder, template) as site:
            yield site
