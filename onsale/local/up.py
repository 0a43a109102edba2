"""`onsale up`: runs the whole suite on one machine and one port: databases, payment sandbox, services.

Everything started here ends with it, in order; supervisors guarantee that even when this process is killed.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import httpx

from onsale.atomic_file import atomic_write
from onsale.data_dir import STARTED_FILE, Engines, write_engines_file
from onsale.imports import import_module
from onsale.local import key_file
from onsale.local.engines import lock_data_dir, start_databases
from onsale.local.ports import HOST as LOOPBACK
from onsale.local.ports import start_on_free_port
from onsale.local.process import Child, require_running
from onsale.local.suite_services import Suite
from onsale.server.one_port import Listener
from shared.features import package_of, services
from shared.process.secrets_dir import postgres_urls

T = TypeVar("T")
REQUEST_TIMEOUT_S = 5.0
CONSOLE_LINK_FILE = "console.link"


async def run(suite: Suite, *, started: Callable[[], None]) -> None:
    """Runs until SIGINT or SIGTERM; PostgreSQL, Valkey or one of several processes of services is restarted when it
    ends.

    Raises `OperatorError` when a person must fix something.
    """
    Listener(_nothing, suite.host, suite.port).bind().close()  # reports a used port before the databases are started
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        ready = asyncio.create_task(stack.enter_async_context(up(suite)))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
            return
        ready.result()
        started()
        restarting = {asyncio.create_task(each.run(suite.report)) for each in suite.restarted}
        ended = {asyncio.create_task(child.wait()) for child in suite.children}
        try:
            await asyncio.wait({stopped, *restarting, *ended}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                require_running(suite.children)
            for failed in (task for task in restarting if task.done()):
                failed.result()
        finally:
            for task in (*restarting, *ended):
                task.cancel()
            await asyncio.gather(*restarting, *ended, return_exceptions=True)
        suite.report("Stopping …")


@asynccontextmanager
async def up(suite: Suite) -> AsyncIterator[None]:
    """The suite is ready inside this context: event files applied, waiting rooms open.

    The databases and the sandbox are processes of their own; while they start and migrate, this one imports the
    services.
    """
    async with AsyncExitStack() as stack:
        suite.report("Starting PostgreSQL and Valkey …")
        locked = lock_data_dir(suite.data_dir)  # before anything is written there
        started = suite.data_dir / STARTED_FILE
        started.unlink(missing_ok=True)
        importer = ThreadPoolExecutor(1)  # two threads would meet modules that the other has imported in part
        stack.callback(importer.shutdown, wait=False, cancel_futures=True)
        loop = asyncio.get_running_loop()
        migrations = loop.run_in_executor(importer, _migrations)
        databases = _begin(stack, _databases(suite, stack, locked, migrations))
        await asyncio.sleep(0)  # it has begun, and so unlocks the directory however this ends
        secrets = key_file.service_secrets(suite.data_dir)
        sandbox = _begin(stack, _sandbox(suite, stack, secrets))
        loading = loop.run_in_executor(importer, _load, suite)
        engines, sandbox_url, _ = await asyncio.gather(databases, sandbox, loading)
        write_engines_file(suite.data_dir, engines, sandbox_url, url=suite.url)

        from onsale.local import suite_services

        suite.report("Starting the services …")
        environment = suite_services.environment(suite, engines, secrets, sandbox_url)
        await suite_services.start_services(suite, stack, environment)
        suite.report("Applying event files …")
        await suite_services.apply(suite)
        if await suite_services.runs(suite, "console"):
            suite.console_link = f"{suite.url}/console/#link={environment['CONSOLE_LINK_SECRET']}"
            atomic_write(suite.data_dir / CONSOLE_LINK_FILE, suite.console_link + "\n")
        stack.callback(started.unlink, missing_ok=True)
        started.touch()
        yield


async def _databases(
    suite: Suite, stack: AsyncExitStack, locked: tuple[Path, int], migrations: "asyncio.Future[ModuleType]"
) -> Engines:
    """Starts PostgreSQL and Valkey and migrates the schemas of all services; the addresses of both."""
    databases = await start_databases(suite.data_dir, environ=suite.environ, locked=locked)
    stack.push_async_callback(databases.stop)
    suite.restarted += databases.own_servers
    suite.report("Migrating …")
    urls = postgres_urls(suite.environ, databases.addresses.postgres_url)
    upgrade = (await migrations).upgrade
    await asyncio.gather(*(upgrade(url, service) for service, url in urls.items()))
    return databases.addresses


def _migrations() -> ModuleType:
    from shared.postgres import migrations

    return migrations


def _load(suite: Suite) -> None:
    """Imports what `up` goes on with: the services, if they run in this process."""
    import_module("onsale.local.suite_services")
    if suite.processes == 1:
        for module in ("onsale.server.suite_process", *(f"{package_of(name)}.app" for name in services())):
            import_module(module)


def _begin(stack: AsyncExitStack, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Begins the work beside the caller's own; it ends with the stack at the latest."""

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    task = asyncio.create_task(work)
    stack.push_async_callback(end)
    return task


async def _sandbox(suite: Suite, stack: AsyncExitStack, secrets: Mapping[str, str]) -> str:
    """Starts the payment sandbox as a server of its own, as any provider would be; its address."""
    engine_dir, log_dir = suite.data_dir / "engines", suite.data_dir / "log"

    def launch(port: int) -> Child:
        books, hook = suite.data_dir / "sandbox.jsonl", f"http://{LOOPBACK}:{suite.port}/webhooks/sandbox"
        options = ["--port", str(port), "--books", str(books), "--webhook-url", hook]
        env = {
            **suite.environ,
            "ONSALE_SANDBOX_WEBHOOK_SECRET": secrets["ONSALE_SANDBOX_WEBHOOK_KEYS"].partition(":")[2],
        }
        return Child.start(
            [sys.executable, "-P", "-m", "onsale.sandbox", *options],
            name="The payment sandbox",
            lock_path=engine_dir / "sandbox.lock",
            log_path=log_dir / "sandbox.log",
            stop_signal="TERM",
            env=env,
        )

    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # noqa: S501 - plain HTTP on this machine
        child, port = await start_on_free_port(launch, lambda port: _healthy(client, port), report=suite.report)
    suite.children.append(child)
    stack.push_async_callback(child.stop)
    return f"http://{LOOPBACK}:{port}"


async def _healthy(client: httpx.AsyncClient, port: int) -> bool:
    try:
        return (await client.get(f"http://{LOOPBACK}:{port}/healthz", timeout=REQUEST_TIMEOUT_S)).is_success
    except httpx.HTTPError:
        return False


async def _nothing(scope: object, receive: object, send: object) -> None:
    """An app that is never called: only the port is tried."""
