"""The services of a local suite, in this process or one each, and the one port in front of them.

Importing this module imports the services' frameworks, which takes as long as starting PostgreSQL: `up` does both at
once.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from secrets import token_urlsafe

import httpx
from starlette.types import ASGIApp

from onsale.admin_client import AdminClient
from onsale.data_dir import Engines, admin_key, write_scrape_targets
from onsale.local.ports import HOST as LOOPBACK
from onsale.local.ports import StartupDeadline, free_ports
from onsale.local.process import Child, RestartedChild, require_running
from onsale.local.suite import Suite
from onsale.server import serve
from onsale.server.dev_proxy import DevProxy, RemoteService
from onsale.server.listener import Listener
from shared.routes import SALE_SERVICES, SERVICES, Service
from shared.runtime import tracing
from shared.security.auth import AdminKeys
from shared.web.app import internal, public

REQUEST_TIMEOUT_S = 5.0
Apps = dict[Service, ASGIApp]


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
    ports = free_ports(2 * len(SERVICES))
    for service, port, internal_port in zip(SERVICES, ports[::2], ports[1::2], strict=True):
        settings |= {f"{service.upper()}_PORT": str(port), f"{service.upper()}_INTERNAL_PORT": str(internal_port)}
        settings[f"ONSALE_{service.upper()}_URL"] = f"http://{LOOPBACK}:{internal_port}"
    chosen = {f"ONSALE_{part}_URL" for part in (*map(str.upper, SERVICES), "POSTGRES", "REDIS", "SANDBOX")}
    mine = {name: value for name, value in suite.environ.items() if name in settings.keys() - chosen}
    return settings | mine


async def start_services(suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str]) -> None:
    """Starts the services behind the suite's one port."""
    services, inside = await _start(suite, stack, environment)
    write_scrape_targets(suite.data_dir, suite.scraped)
    keys = AdminKeys(environment["ONSALE_ADMIN_KEYS"])
    front = DevProxy(services, inside, lambda: _not_ready(suite, services), keys)
    listener = Listener(front, suite.host, suite.port)
    await stack.enter_async_context(serve.running({}, [listener], {}))


async def _start(suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str]) -> tuple[Apps, Apps]:
    """Starts the services; their public apps and their internal ones."""
    here = [name for name in serve.START_ORDER if name != "notifier" or not suite.notifiers]
    services, inside = await (_processes if suite.processes else _one_process)(suite, stack, environment, here)
    if suite.notifiers:
        several = await _start_notifiers(suite, environment)
        stack.push_async_callback(lambda: asyncio.gather(*(each.child.stop() for each in several)))
        services["notifier"] = RemoteService(_client(stack), f"http://{LOOPBACK}:{environment['NOTIFIER_PORT']}")
        await _wait_for_processes(suite, [*suite.children, *(each.child for each in several)], services)
        suite.restarted += several
    return services, inside


async def _start_notifiers(suite: Suite, environment: Mapping[str, str]) -> list[RestartedChild]:
    """Several notifiers on one port: each has its own listening socket; the kernel distributes connections."""
    ports = free_ports(suite.notifiers)
    suite.scraped |= {f"notifier-{n}": f"{LOOPBACK}:{port}" for n, port in enumerate(ports, 1)}

    async def start(number: int) -> Child:
        own = {**environment, "NOTIFIER_SHARE_PORT": "1", "NOTIFIER_INTERNAL_PORT": str(ports[number - 1])}
        return _start_service(suite, own, "notifier", name=f"Notifier {number}", files=f"notifier-{number}")

    return [RestartedChild(await start(n), partial(start, n)) for n in range(1, suite.notifiers + 1)]


def _start_service(suite: Suite, environment: Mapping[str, str], service: Service, *, name: str, files: str) -> Child:
    """A service in a process of its own; its lock and its log are called `files`."""
    return Child.start(
        [sys.executable, "-P", "-m", "onsale", "serve", service],
        name=name,
        lock_path=suite.data_dir / "engines" / f"{files}.lock",
        log_path=suite.data_dir / "log" / f"{files}.log",
        stop_signal="TERM",
        env={**suite.environ, **environment},
    )


async def _one_process(
    suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str], names: Sequence[Service]
) -> tuple[Apps, Apps]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        tracing.start_from_environment()
        apps = serve.create(names)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    await stack.enter_async_context(serve.running(apps, [], serve.internal_listeners(apps)))
    suite.scraped["suite"] = f"{LOOPBACK}:{environment['QUEUE_INTERNAL_PORT']}"
    return {name: public(app) for name, app in apps.items()}, {name: internal(app) for name, app in apps.items()}


def _client(stack: AsyncExitStack) -> httpx.AsyncClient:
    """An HTTP client for services in other processes, open as long as the suite runs."""
    limits, jar = httpx.Limits(max_connections=None), CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    client = httpx.AsyncClient(
        trust_env=False,
        verify=False,  # noqa: S501 - plain HTTP on this machine
        timeout=None,  # noqa: S113 - streams
        limits=limits,
        cookies=jar,  # keeps none: one fan's cookie must never be sent with another's request
    )
    stack.push_async_callback(client.aclose)
    return client


async def _processes(
    suite: Suite, stack: AsyncExitStack, environment: Mapping[str, str], names: Sequence[Service]
) -> tuple[Apps, Apps]:
    client = _client(stack)
    proxies: Apps = {}
    inside: Apps = {}
    for service in names:

        async def start(service: Service = service) -> Child:
            return _start_service(suite, environment, service, name=f"The {service} process", files=service)

        child = await start()
        if service in SALE_SERVICES:
            suite.children.append(child)
            stack.push_async_callback(child.stop)
        else:  # fans do not need it: the suite goes on without it until it is there again
            suite.restarted.append(again := RestartedChild(child, start))
            stack.push_async_callback(partial(_stop, again))
        proxies[service] = RemoteService(client, f"http://{LOOPBACK}:{environment[f'{service.upper()}_PORT']}")
        suite.scraped[service] = f"{LOOPBACK}:{environment[f'{service.upper()}_INTERNAL_PORT']}"
        inside[service] = RemoteService(client, f"http://{suite.scraped[service]}")
    await _wait_for_processes(suite, suite.children, proxies)
    return proxies, inside


async def _stop(restarted: RestartedChild) -> None:
    await restarted.child.stop()


async def _wait_for_processes(suite: Suite, children: Sequence[Child], proxies: Mapping[Service, ASGIApp]) -> None:
    """Waits until all are ready. Raises `OperatorError` when one ends."""
    deadline = StartupDeadline(suite.report)
    while waiting_for := await _failing(proxies):
        require_running(children)
        deadline.check(f"The readiness of {', '.join(waiting_for)}", details=f"more in {suite.data_dir / 'log'}")
        await asyncio.sleep(0.1)


async def _not_ready(suite: Suite, services: Mapping[Service, ASGIApp]) -> list[str]:
    return await _failing(services) + ([] if suite.applied else ["event files"])


async def _failing(services: Mapping[Service, ASGIApp]) -> list[str]:
    """The services whose `/readyz` does not answer 200, as a load balancer would see it."""

    async def is_ready(name: Service) -> bool:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=services[name]), base_url="http://front"
        ) as client:
            try:
                async with asyncio.timeout(
                    REQUEST_TIMEOUT_S
                ):  # a process that is still loading already accepts connections
                    return (await client.get("/readyz")).status_code == 200
            except TimeoutError:
                return False

    answers = await asyncio.gather(*map(is_ready, services))
    return [name for name, ready in zip(services, answers, strict=True) if not ready]


async def apply(suite: Suite) -> None:
    """Applies the event files, which is idempotent. Only a room that is still a draft is opened."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # noqa: S501 - plain HTTP on this machine
        admin = AdminClient(client, f"http://{LOOPBACK}:{suite.port}", admin_key(suite.data_dir, suite.environ))
        for event in suite.events:
            await admin.apply(event, pictures=suite.pictures.get(event.event_id, {}))
            if (await admin.read_room(event.event_id)).state == "draft":
                await admin.set_room_state(event.event_id, "open", {"reason": "onsale up"})
