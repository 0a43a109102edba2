"""The steps of docs/operate/deploy.md, run as written with real databases and nginx."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from onsale.local.binaries import find_postgres
from onsale.local.engines import Engines, start_databases, with_driver
from tests.support.engines.engines import run_in_thread
from tests.support.programs import DOCS, Ports, block, shell
from tests.support.wait import wait_until

ROOT = DOCS.parent
GUIDE = DOCS / "operate" / "deploy.md"


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


async def sell_a_ticket(databases: Engines, folder: Path, *programs: Path) -> None:
    """Follows the guide in the folder, with the programs of these folders before all others."""
    postgres, redis = urlsplit(databases.postgres_url), urlsplit(databases.redis_url)
    ports = Ports(p5432=postgres.port or 0, p6379=redis.port or 0)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    settings = folder / "deploy" / "by-hand.env"
    settings.write_text(ports.replace(settings.read_text()).replace("redis://", f"redis://:{redis.password}@"))
    path = [*programs, find_postgres(os.environ, major=None).directory, "/usr/sbin", os.environ["PATH"]]
    environ = {"PATH": ":".join(map(str, path)), "HOME": str(folder), "PGPASSWORD": postgres.password or ""}
    with shell(ports.replace(block(GUIDE, "By hand, on one machine")), folder, **environ):
        url = ports.replace("http://127.0.0.1:8080")

        def answers() -> bool:
            output = (folder / "shell.log").read_text()
            assert "Traceback" not in output, output
            try:
                return httpx.get(f"{url}/events", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        await wait_until(answers, timeout_s=90, interval_s=0.5)
        first_sale = ports.replace(block(GUIDE, "The first on-sale"))
        sold = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", f"set -eu\n{first_sale}"],
            cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert sold.returncode == 0, sold.stdout + sold.stderr + (folder / "shell.log").read_text()
        [bought] = re.findall(r"bought +│? *(\d+)", sold.stdout)
        assert int(bought) > 0, sold.stdout
