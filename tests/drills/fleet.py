"""The five services, each a process of its own, on engines of their own: every one of them can be killed alone."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import redis

from onsale import key_file
from onsale.binaries import find_redis
from onsale.keeper import dies_with_this_process
from onsale.loopback import free_port
from shared.routes import SERVICES, Service, route
from tests.support.suite import RunningSuite, no_cookies

HOST = "127.0.0.1"
UP_WITHIN_S = 150.0


class Program:
    """A process that can be killed, frozen and started again; it dies with the thread that started it, so that is the
    tests' own.
    """

    def __init__(self, command: list[str], log_path: Path, *, env: dict[str, str] | None = None) -> None:
        self.command, self._log_path, self.env = command, log_path, env or dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, env=self.env, stdout=log, stderr=log,
                preexec_fn=dies_with_this_process(signal.SIGTERM),
            )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """Ends it and waits until it has ended."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(timeout=20)

    def said(self) -> str:
        return self._log_path.read_text()[-2000:]


class Valkey(Program):
    """An engine with its append-only file, as `onsale up` configures it."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        options = {"port": str(self.port), "bind": HOST, "dir": str(home), "appendonly": "yes", "save": ""}
        flat = [part for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__([str(find_redis(os.environ)), *flat], home / "valkey.log")

    def wait(self) -> None:
        """Returns when it answers."""
        client = redis.Redis.from_url(self.url)
        until(client.ping, what="Valkey")
        client.close()

    def copy_to(self, place: Path) -> None:
        shutil.copytree(self.home / "appendonlydir", place)

    def put_back(self, place: Path) -> None:
        shutil.rmtree(self.home / "appendonlydir")
        shutil.copytree(place, self.home / "appendonlydir")


def until(answers: Any, *, what: str) -> None:
    """Returns once it answers."""
    deadline_s = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            if answers():
                return
        except (httpx.HTTPError, redis.RedisError, OSError):
            pass
        assert time.monotonic() < deadline_s, f"{what} is not up in time"
        time.sleep(0.02)


class _ByRoute(httpx.AsyncBaseTransport):
    """The load balancer: each request to the service that the table names."""

    def __init__(self, ports: dict[Service, int]) -> None:
        self._ports = ports
        self._pool = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=200))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        row = route(request.url.path)
        assert row is not None, request.url.path
        request.url = request.url.copy_with(host=HOST, port=self._ports[row.service])
        return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        await self._pool.aclose()


class Fleet(RunningSuite):
    """A suite as operators see it, whose parts can be taken away one by one."""

    def __init__(self, data_dir: Path, postgres_url: str) -> None:
        super().__init__(data_dir)
        data_dir.mkdir()
        self.postgres_url, self.valkey = postgres_url, Valkey(data_dir)
        self.ports: dict[Service, int] = {service: free_port() for service in SERVICES}
        self.programs: dict[str, Program] = {"valkey": self.valkey}
        self.urls: dict[str, str] = {}
        self._plan(free_port())

    def _plan(self, sandbox_port: int) -> None:
        secrets = key_file.service_secrets(self.data_dir)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
        env = clean | secrets | {
            "ONSALE_POSTGRES_URL": self.postgres_url, "ONSALE_REDIS_URL": self.valkey.url,
            "ONSALE_SANDBOX_URL": f"http://{HOST}:{sandbox_port}", "ONSALE_PUBLIC_URL": self.url,
            "ONSALE_ADMIN_KEYS": f"operator:admin:{key_file.admin_key(self.data_dir, {})}",
            "ONSALE_SANDBOX_WEBHOOK_SECRET": secrets["ONSALE_SANDBOX_WEBHOOK_KEYS"].partition(":")[2],
        }  # fmt: skip
        for service, port in self.ports.items():
            internal = free_port()
            env |= {f"{service.upper()}_PORT": str(port), f"{service.upper()}_INTERNAL_PORT": str(internal)}
            env[f"ONSALE_{service.upper()}_URL"] = f"http://{HOST}:{internal}"
        self.urls["sandbox"] = env["ONSALE_SANDBOX_URL"]
        hook = f"http://{HOST}:{self.ports['orders']}/webhooks/sandbox"
        python = [sys.executable, "-P", "-m"]
        sandbox = [*python, "onsale.sandbox", "--port", str(sandbox_port), "--webhook-url", hook]
        self.programs["sandbox"] = Program(sandbox, self.data_dir / "sandbox.log", env=env)
        for service in SERVICES:
            command = [*python, "onsale", "serve", service]
            self.programs[service] = Program(command, self.data_dir / f"{service}.log", env=env)

    def start(self) -> "Fleet":
        self.valkey.start()
        self.valkey.wait()
        for name, program in self.programs.items():
            if name != "valkey":
                program.start()
        return self

    def wait_until_ready(self) -> "Fleet":
        for service in SERVICES:
            self.wait_for(service)
        return self

    async def restart(self, service: Service, number: signal.Signals) -> None:
        """Ends it so and starts it again; returns when it is ready."""
        await asyncio.to_thread(self.programs[service].end, number)
        self.programs[service].start()
        await asyncio.to_thread(self.wait_for, service)

    def wait_for(self, service: Service) -> None:
        url = f"http://{HOST}:{self.ports[service]}/readyz"
        try:
            until(lambda: httpx.get(url, timeout=5, trust_env=False).status_code == 200, what=service)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.programs[service].said()}") from None

    def end(self) -> None:
        for program in reversed(self.programs.values()):
            program.end(signal.SIGKILL)

    def operator(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.admin_key}"}
        return httpx.AsyncClient(base_url=self.url, transport=_ByRoute(self.ports), headers=headers, timeout=20)

    def browser(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url, transport=_ByRoute(self.ports), timeout=20, cookies=no_cookies()
        )  # fmt: skip
