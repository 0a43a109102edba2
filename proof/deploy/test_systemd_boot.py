"""The steps of docs/operate/deploy.md under systemd, run as written where systemd has booted, sell a ticket."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from onsale.local.engines import Engines
from onsale.local.ports import HOST
from proof.deploy.guide import GUIDE, own_databases  # noqa: F401 - a fixture
from shared.routes import SERVICES
from tests.deploy.test_kubernetes import ROOT
from tests.support.programs import Ports, block, need, needs, shell
from tests.support.running.program import Program
from tests.support.wait import wait_until

PACKAGES = "systemd,systemd-sysv,dbus,python3.11-venv,postgresql-client"
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")  # how pip reaches its index
SUDO = """#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; fi
exec "$@"
"""
INSTALL = """[Unit]
After=basic.target
[Service]
Type=oneshot
WorkingDirectory=/src
Environment=PGPASSWORD={password}
ExecStart=/bin/sh -c 'sh -eux /src/install.sh || echo Failed'
StandardOutput=append:/src/install.log
StandardError=append:/src/install.log
[Install]
WantedBy=multi-user.target
"""
pytestmark = [
    needs("systemd-nspawn", "mmdebstrap", "nginx"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """The root of a Debian with systemd and nothing of Onsale, with the sources and the wheel in /src."""
    root = tmp_path / "machine"
    command = [need("mmdebstrap"), "-q", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    subprocess.run(command, check=True, timeout=300)
    (root / "usr" / "local" / "bin" / "sudo").write_text(SUDO)
    (root / "usr" / "local" / "bin" / "sudo").chmod(0o755)
    for path in filter(os.path.exists, OF_THIS_MACHINE):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    shutil.copytree(ROOT / "deploy", root / "src" / "deploy")
    shutil.copy(ROOT / "requirements.lock", root / "src")
    build = [sys.executable, "-P", "-m", "build", "-q", "--no-isolation", "-o", str(root / "src" / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    yield root
    shutil.rmtree(root)


async def test_the_steps_under_systemd_sell_a_ticket(machine: Path, own_databases: Engines, tmp_path: Path) -> None:  # noqa: F811
    postgres, redis = urlsplit(own_databases.postgres_url), urlsplit(own_databases.redis_url)
    ports = Ports(p5432=postgres.port or 0, p6379=redis.port or 0)
    settings = machine / "src" / "deploy" / "by-hand.env"
    text = settings.read_text().replace("redis://", f"redis://:{redis.password}@")
    settings.write_text(ports.replace(text))
    (machine / "src" / "install.sh").write_text(ports.replace(block(GUIDE, "systemd")))
    unit = machine / "etc" / "systemd" / "system" / "install.service"
    unit.write_text(INSTALL.format(password=postgres.password))
    (machine / "etc/systemd/system/multi-user.target.wants" / unit.name).symlink_to(unit.relative_to(machine))
    nspawn = [need("systemd-nspawn"), "-q", "-D", str(machine), "--register=no", "--keep-unit", "--boot"]
    booted = Program(nspawn, tmp_path / "boot.log")
    booted.start()
    try:
        await wait_until(lambda: every_service_is_ready(machine, ports), timeout_s=400, interval_s=1)
        assert_restricted()
        await buy(ports, machine, tmp_path)
    except BaseException:
        print((machine / "src" / "install.log").read_text()[-4000:], booted.log_tail())
        raise
    finally:
        ended = booted.end(signal.SIGTERM, within_s=120)  # systemd stops every unit
    assert ended == 0


def every_service_is_ready(machine: Path, ports: Ports) -> bool:
    log = machine / "src" / "install.log"
    assert "Failed" not in (log.read_text() if log.exists() else "")
    try:
        return all(
            httpx.get(ports.replace(f"http://{HOST}:{8101 + place}") + "/readyz", timeout=3).is_success
            for place in range(len(SERVICES))
        )
    except httpx.HTTPError:
        return False


def assert_restricted() -> None:
    """Every process of a service has no capability, a filter of system calls, and a user that is not root."""
    found = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_text()
            told = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if "/opt/onsale/bin/onsale\0serve" in command:
            found += 1
            assert (told["Seccomp"], told["NoNewPrivs"], int(told["CapBnd"], 16)) == ("2", "1", 0)
            assert told["Uid"].split()[0] != "0"
    assert found == len(SERVICES)


async def buy(ports: Ports, machine: Path, folder: Path) -> None:
    """Follows the rest of the guide from outside: the sandbox, nginx, and the first on-sale."""
    steps = block(GUIDE, "By hand, on one machine")
    steps = re.sub(r"^onsale serve .*\n", "", steps[steps.index("export ONSALE_SANDBOX_WEBHOOK_SECRET") :], flags=re.M)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    shutil.copytree(machine / "etc" / "onsale" / "secrets", folder / "secrets")
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}", "HOME": str(folder)}
    with shell(ports.replace(steps), folder, **environ):
        await wait_until(lambda: balancer_answers(ports), timeout_s=30)
        sold = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", f"set -eu\n{ports.replace(block(GUIDE, 'The first on-sale'))}"],
            cwd=folder, env=environ, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert sold.returncode == 0, sold.stdout + sold.stderr
    [bought] = re.findall(r"bought +│? *(\d+)", sold.stdout)
    assert int(bought) > 0, sold.stdout


def balancer_answers(ports: Ports) -> bool:
    try:
        return httpx.get(ports.replace(f"http://{HOST}:8080") + "/events", timeout=3).is_success
    except httpx.HTTPError:
        return False
