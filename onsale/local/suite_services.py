"""The services of a local suite, all in this process or all in each of several, and the one port in front of them.

A local suite: what to run, and what is running.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

import httpx

from onsale.admin_client import AdminClient
from onsale.data_dir import Engines, admin_key, write_scrape_targets
from onsale.local.ports import HOST as LOOPBACK
from onsale.local.ports import StartupDeadline, free_ports
from onsale.local.process import Child, Report, RestartedChild, require_running
from shared.features import services
from shared.postgres.settings import POOL_MAX
from shared.routes import Service

if TYPE_CHECKING:  # its import takes as long as starting PostgreSQL
    from shared.contracts.event_file import EventFile


@dataclass
class Suite:
    """What to run, and what is running."""

    data_dir: Path
    events: "Sequence[EventFile]"
    host: str = LOOPBACK
    port: int = 8000
    processes: int = 1
    verbose: bool = False
    report: Report = print
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    pictures: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)  # of each event, by their names
    children: list[Child] = field(default_factory=list)
    restarted: list[RestartedChild] = field(default_factory=list)
    scraped: dict[str, str] = field(default_factory=dict)  # internal address of each process, for Prometheus
    own_ports: dict[str, int] = field(default_factory=dict)  # at which each process alone answers, if there are several
    console_link: str = ""  # works once; without a console there is none

    @property
    def url(self) -> str:
        return f"http://{'localhost' if self.host in {LOOPBACK, '0.0.0.0'} else self.host}:{self.port}"  # noqa: S104


if TYPE_CHECKING:
    from shared.contracts.event_file import EventFile

REQUEST_TIMEOUT_S, POLL_S = 5.0, 0.1
POOL_LEAST = 4  # connections of one service of one process: some of its loops hold one


def environment(suite: Suite, engines: Engines, secrets: Mapping[str, str], sandbox_url: str) -> dict[str, str]:
    """Settings of all services. The environment wins, except for addresses that the suite has just chosen for its
    parts.
    """
    settings = {
        **secrets,
        "ONSALE_POSTGRES_URL": engines.postgres_url,
        "ONSALE_REDIS_URL": engines.redis_url,
        "ONSALE_SANDBOX_URL": sandbox_url,
        "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key(suite.data_dir, suite.environ)}",
        "ONSALE_PUBLIC_URL": suite.url,
        "CONSOLE_ADMIN_URL": f"http://{LOOPBACK}:{suite.port}",
        "CONSOLE_LINK_SECRET": token_urlsafe(32),
    }
    chosen = {f"ONSALE_{part}_URL" for part in ("POSTGRES", "REDIS", "SANDBOX")}
    mine = {name: value for name, value in suite.environ.items() if name in settings.keys() - chosen}
    return settings | mine


async def start_services(suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str]) -> None:
    """Starts the services behind the suite's one port: in this process, or in several with all services each."""
    own = [process_environment(suite, environment) for _ in range(suite.processes)]
    names = ["suite"] if suite.processes == 1 else [f"suite-{n}" for n in range(1, suite.processes + 1)]
    suite.scraped |= {name: _internal_address(each, "queue") for name, each in zip(names, own, strict=True)}
    write_scrape_targets(suite.data_dir, suite.scraped)
    if suite.processes == 1:
        await _start_here(suite, stack, own[0])
    else:
        await _start_processes(suite, stack, dict(zip(names, own, strict=True)))


def process_environment(suite: Suite, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the services of one process: those of all, the addresses of its own parts, and its share."""
    settings = dict(environment)
    for service, port in zip(services(), free_ports(len(services())), strict=True):
        settings[f"{service.upper()}_INTERNAL_PORT"] = str(port)
        settings[f"ONSALE_{service.upper()}_URL"] = f"http://{LOOPBACK}:{port}"
    if suite.processes > 1:
        pool_max = max(POOL_LEAST, ceil(POOL_MAX / suite.processes))
        shares = {"ONSALE_PROCESSES": str(suite.processes), "ONSALE_POSTGRES_POOL_MAX": str(pool_max)}
        settings |= shares | {name: suite.environ[name] for name in shares if name in suite.environ}
    return settings


def _internal_address(environment: Mapping[str, str], service: Service) -> str:
    return f"{LOOPBACK}:{environment[f'{service.upper()}_INTERNAL_PORT']}"


async def _start_here(suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str]) -> None:
    from onsale.server import suite_process  # imports the frameworks

    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        running = suite_process.running(suite_process.Port(suite.data_dir, suite.host, suite.port))
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    await stack.enter_async_context(running)


async def _start_processes(suite: Suite, stack: AsyncExitStack, environments: Mapping[str, Mapping[str, str]]) -> None:
    """Starts processes that share the port, and waits until each answers at an address of its own."""
    own_ports = dict(zip(environments, free_ports(len(environments)), strict=True))

    async def start(name: str) -> Child:
        place = ["--data-dir", str(suite.data_dir), "--host", suite.host, "--port", str(suite.port)]
        place += ["--own-port", str(own_ports[name]), *(["--verbose"] if suite.verbose else [])]
        return Child.start(
            [sys.executable, "-P", "-m", "onsale.server.suite_process", *place],
            name=f"The process {name}",
            lock_path=suite.data_dir / "engines" / f"{name}.lock",
            log_path=suite.data_dir / "log" / f"{name}.log",
            stop_signal="TERM",
            env={**suite.environ, **environments[name]},
        )

    processes = [RestartedChild(await start(name), partial(start, name)) for name in environments]
    stack.push_async_callback(lambda: asyncio.gather(*(each.child.stop() for each in processes)))
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=REQUEST_TIMEOUT_S) as client:  # noqa: S501 - plain HTTP on this machine
        started = {name: partial(_has_started, client, port) for name, port in own_ports.items()}
        await _wait_for_processes(suite, [each.child for each in processes], started)
    suite.restarted += processes
    suite.own_ports |= own_ports


async def _wait_for_processes(
    suite: Suite, children: Sequence[Child], started: Mapping[str, Callable[[], Awaitable[bool]]]
) -> None:
    """Waits until all have started. Raises `OperatorError` when one ends."""
    deadline = StartupDeadline(suite.report)
    while waiting_for := [name for name, has_started in started.items() if not await has_started()]:
        require_running(children)
        deadline.check(f"The readiness of {', '.join(waiting_for)}", details=f"more in {suite.data_dir / 'log'}")
        await asyncio.sleep(POLL_S)


async def _has_started(client: httpx.AsyncClient, port: int) -> bool:
    """Whether this process waits for nothing but the event files."""
    try:
        answer = await client.get(f"http://{LOOPBACK}:{port}/readyz")
    except httpx.HTTPError:
        return False
    return answer.is_success or answer.json().get("failing") == ["event files"]


async def apply(suite: Suite) -> None:
    """Applies the event files, which is idempotent, and waits until every process knows them. Only a room that is still
    a draft is opened.
    """
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # noqa: S501 - plain HTTP on this machine
        admin = AdminClient(client, f"http://{LOOPBACK}:{suite.port}", admin_key(suite.data_dir, suite.environ))
        for event in suite.events:
            await admin.apply(event, pictures=suite.pictures.get(event.event_id, {}))
            if (await admin.read_room(event.event_id)).state == "draft":
                await admin.set_room_state(event.event_id, "open", {"reason": "onsale up"})
        knowing = {name: partial(_knows, client, port, suite.events) for name, port in suite.own_ports.items()}
        await _wait_for_processes(suite, [], knowing)


async def runs(suite: Suite, service: Service) -> bool:
    """Whether the suite has this service: one that sells, or that of a feature that is installed and on."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # noqa: S501 - plain HTTP on this machine
        return (await client.get(f"http://{LOOPBACK}:{suite.port}/{service}/livez")).is_success


async def _knows(client: httpx.AsyncClient, port: int, events: "Sequence[EventFile]") -> bool:
    """Whether this process answers for all these events: it reads them a moment after another process wrote them."""
    addresses = (f"http://{LOOPBACK}:{port}/events/{event.event_id}" for event in events)
    return all([(await client.get(address)).is_success for address in addresses])
