"""The steps of docs/operate/deploy.md, run as written with real databases and nginx."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from onsale.local.binaries import find_postgres
from onsale.local.engines import Engines, start_databases, with_driver
from onsale.local.ports import free_port
from tests.support.engines.engines import run_in_thread
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "operate" / "deploy.md").read_text()
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+(?:/\d{4})?|(?<=_PORT=)\d+|(?<=-port )\d+")


def block(title: str) -> str:
    """The shell block of a section of the guide."""
    [script] = re.findall(r"```sh\n(.*?)```", GUIDE.split(f"## {title}\n")[1].split("\n## ")[0], re.DOTALL)
    return str(script)


class Ports:
    """Replaces every port of the guide by a free one."""

    def __init__(self, **known: int) -> None:
        self._known = {name.removeprefix("p"): str(port) for name, port in known.items()}

    def replace(self, text: str) -> str:
        return PORT.sub(lambda match: "/".join(map(self._free, match[0].split("/"))), text)

    def _free(self, port: str) -> str:
        return self._known.setdefault(port, str(free_port()))


@pytest.fixture
def own_databases(tmp_path: Path) -> Iterator[Engines]:
    """A PostgreSQL without a role or database named onsale, and an empty Valkey."""
    running = run_in_thread(start_databases(tmp_path / "databases", fsync=False, environ={"PATH": os.environ["PATH"]}))
    try:
        run_in_thread(_free_names(running.addresses))
        yield running.addresses
    finally:
        run_in_thread(running.stop())


async def _free_names(engines: Engines) -> None:
    """Drops the embedded database and renames the embedded superuser, both called onsale: the guide creates them."""
    url = urlsplit(with_driver(engines.postgres_url))
    first = await asyncpg.connect(url._replace(path="/postgres").geturl())
    await first.execute(f"CREATE ROLE postgres SUPERUSER LOGIN PASSWORD '{url.password}'")
    await first.close()
    address = f"postgres:{url.password}@{url.hostname}:{url.port}"
    second = await asyncpg.connect(url._replace(netloc=address, path="/postgres").geturl())
    await second.execute("DROP DATABASE onsale")
    await second.execute("ALTER ROLE onsale RENAME TO embedded")
    await second.close()


@contextmanager
def shell(script: str, folder: Path, **environ: str) -> Iterator[None]:
    """Runs a script in the background; all processes it started end with this context."""
    with (folder / "shell.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"set -eu\n{script}\nwait"], cwd=folder, env=environ, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            finally:
                os.killpg(process.pid, signal.SIGKILL)


async def sell_a_ticket(databases: Engines, folder: Path, *programs: Path) -> None:
    """Follows the guide in the folder, with the programs of these folders before all others."""
    postgres, redis = urlsplit(databases.postgres_url), urlsplit(databases.redis_url)
    ports = Ports(p5432=postgres.port or 0, p6379=redis.port or 0)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    settings = folder / "deploy" / "by-hand.env"
    settings.write_text(ports.replace(settings.read_text()).replace("redis://", f"redis://:{redis.password}@"))
    path = [*programs, find_postgres(os.environ, major=None).directory, "/usr/sbin", os.environ["PATH"]]
    environ = {"PATH": ":".join(map(str, path)), "HOME": str(folder), "PGPASSWORD": postgres.password or ""}
    with shell(ports.replace(block("By hand, on one machine")), folder, **environ):
        url = ports.replace("http://127.0.0.1:8080")

        def answers() -> bool:
            output = (folder / "shell.log").read_text()
            assert "Traceback" not in output, output
            try:
                return httpx.get(f"{url}/events", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        await wait_until(answers, timeout_s=90, interval_s=0.5)
        first_sale = ports.replace(block("The first on-sale"))
        sold = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", f"set -eu\n{first_sale}"],
            cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert sold.returncode == 0, sold.stdout + sold.stderr + (folder / "shell.log").read_text()
        [bought] = re.findall(r"bought +│? *(\d+)", sold.stdout)
        assert int(bought) > 0, sold.stdout
