"""The units in `deploy/systemd` fit the code, pass systemd's own checks, and give a service few rights.

Valkey, started as compose starts it, asks for the password of `onsale keys new`; the replica copies the primary.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis.asyncio

from onsale.cli import app as cli
from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from onsale.maintenance import new_secrets
from shared.routes import SERVICES
from tests.deploy.test_containers import CLOSE_S, known_variables, settings_class
from tests.deploy.test_kubernetes import DEPLOY, compose, objects, pods
from tests.support.engines.engines import fast_directory
from tests.support.programs import needs
from tests.support.running.program import Program
from tests.support.wait import wait_until

UNITS = DEPLOY / "systemd"
EXPOSURE_MAX = 1.5  # of 10, as `systemd-analyze security` counts


def entries(unit: str) -> dict[str, list[str]]:
    """The values of every key of a unit, in order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (UNITS / unit).read_text(), re.M):
        found.setdefault(key, []).append(value)
    return found


def by_hand() -> dict[str, str]:
    text = (DEPLOY / "by-hand.env").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


@pytest.fixture
def checked(tmp_path: Path) -> list[Path]:
    """The units, with a program that exists in place of Onsale, and an instance of the template."""
    for unit in UNITS.glob("*.*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/onsale/bin/onsale", "/bin/true"))
    shutil.copy(tmp_path / "onsale@.service", tmp_path / "onsale@queue.service")
    return [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".sysusers" and "@." not in path.name]


def analyze(*arguments: str | Path) -> str:
    command: list[str | Path] = ["systemd-analyze", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.defpath})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@needs("systemd-analyze")
def test_systemd_finds_nothing_wrong(checked: list[Path]) -> None:
    assert analyze("verify", "--man=no", *checked) == ""


@needs("systemd-analyze")
def test_a_service_is_exposed_little(checked: list[Path]) -> None:
    for unit in (path for path in checked if path.suffix == ".service"):
        [level] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", analyze("security", "--offline=yes", unit))
        assert float(level) <= EXPOSURE_MAX, unit.name


def test_every_unit_starts_a_command_that_exists() -> None:
    for unit in UNITS.glob("*.service"):
        [start] = entries(unit.name)["ExecStart"]
        program, name, *arguments = start.replace("%i", "queue").split()
        assert program == "/opt/onsale/bin/onsale"
        command = cli.loaded(next(entry for entry in cli.commands() if entry.name == name))
        assert command.make_context(name, arguments).params is not None


def test_the_target_starts_every_service_and_the_backup() -> None:
    wanted = " ".join(entries("onsale.target")["Wants"]).split()
    assert set(wanted) == {*(f"onsale@{service}.service" for service in SERVICES), "onsale-backup.timer"}
    template = entries("onsale@.service")
    assert template["PartOf"] == ["onsale.target"]
    assert "onsale-migrate.service" in template["Wants"][0].split()
    assert "onsale-migrate.service" in template["After"][0].split()
    assert template["Restart"] == ["always"]
    assert template["StartLimitIntervalSec"] == ["0"], "a service waits for its tables by being started again"


def test_the_settings_of_the_units_exist_and_a_service_has_time_to_stop() -> None:
    settings = by_hand()
    assert set(settings) <= known_variables()
    [stop_s] = map(float, entries("onsale@.service")["TimeoutStopSec"])
    for service in SERVICES:
        fields = settings_class(service).model_fields
        drains = [fields[name].default for name in ("drain_delay_s", "drain_s", "shutdown_grace_s") if name in fields]
        assert stop_s >= sum(drains) + CLOSE_S, f"{service} is killed before it has drained"


def test_units_share_one_list_of_restrictions() -> None:
    restrictions = [unit.read_text().partition("User=onsale\n")[2] for unit in UNITS.glob("*.service")]
    assert len(restrictions) == 3
    assert len(set(restrictions)) == 1
    assert "ProtectSystem=strict" in restrictions[0]


@dataclass
class Pair:
    """A primary and its replica: their ports, the password, and the file that has it."""

    ports: list[int]
    auth_file: Path

    @property
    def password(self) -> str:
        url = (self.auth_file.parent / "onsale_redis_url").read_text()
        return urlsplit(url).password or ""

    def client(self, port: int, password: str | None) -> "redis.asyncio.Redis":
        return redis.asyncio.Redis(host=HOST, port=port, password=password, decode_responses=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both, started by the shell command of compose.yaml."""
    [_, _, script] = compose()["services"]["valkey"]["command"]
    with tempfile.TemporaryDirectory(prefix="onsale-valkey-", dir=fast_directory()) as folder:
        new_secrets.new(Path(folder) / "secrets")
        started = Pair([free_port(), free_port()], Path(folder) / "secrets" / "valkey_auth.conf")
        programs = []
        for role, port in zip(("primary", "replica"), started.ports, strict=True):
            home = Path(folder) / role
            home.mkdir()
            own = f"port {port}\nbind {HOST}\ndir {home}\nrepl-diskless-sync-delay 0\n"
            configuration = (DEPLOY / "valkey" / f"{role}.conf").read_text() + own
            (home / "valkey.conf").write_text(
                configuration.replace("replicaof valkey 6379", f"replicaof {HOST} {started.ports[0]}")
            )
            command = script.replace("$$", "$").replace(
                "docker-entrypoint.sh valkey-server", str(find_redis(os.environ))
            )
            command = command.replace("/etc/valkey/valkey.conf", str(home / "valkey.conf"))
            command = command.replace("/run/secrets/valkey_auth.conf", str(started.auth_file))
            programs.append(Program(["sh", "-c", command], home / "log"))
        for program in programs:
            program.start()
        yield started
        for program in programs:
            program.end(signal.SIGKILL)


async def test_a_replica_copies_its_primary_and_neither_evicts_a_key(pair: Pair) -> None:
    primary, replica = (pair.client(port, pair.password) for port in pair.ports)
    async with primary, replica:
        await wait_until(lambda: is_reachable(primary), timeout_s=20)
        await primary.set("key", "first")
        await wait_until(lambda: has_key(replica), timeout_s=20)
        for server in (primary, replica):
            expected = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
            assert await server.config_get(*expected) == expected
        with pytest.raises(redis.ReadOnlyError):
            await replica.set("key", "second")


@pytest.mark.proof
async def test_neither_answers_without_the_password(pair: Pair) -> None:
    for port in pair.ports:
        async with pair.client(port, pair.password) as known, pair.client(port, None) as unknown:
            await wait_until(lambda known=known: is_reachable(known), timeout_s=20)  # type: ignore[misc]
            with pytest.raises(redis.AuthenticationError):
                await unknown.get("key")


@pytest.mark.parametrize("user", ["compose", "chart"])
def test_a_health_check_finds_the_password_in_its_file(user: str, pair: Pair) -> None:
    """The shell part of it: what it gives `valkey-cli` is the password, and a wrong answer is a failure (`-e`)."""
    if user == "compose":
        [_, check] = compose()["services"]["valkey"]["healthcheck"]["test"]
    else:
        [valkey] = [pod for name, pod in pods(objects("small")) if name == "valkey"]
        [_, _, check] = valkey["containers"][0]["readinessProbe"]["exec"]["command"]
    assert check.endswith(" valkey-cli -e ping")
    asked = re.sub(r"/run/secrets/\S*valkey_auth.conf", str(pair.auth_file), check.replace("$$", "$"))
    printed = subprocess.run(
        ["sh", "-c", asked.replace("valkey-cli -e ping", "printenv REDISCLI_AUTH")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout.strip() == pair.password


async def is_reachable(client: "redis.asyncio.Redis") -> bool:
    try:
        return bool(await client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


async def has_key(client: "redis.asyncio.Redis") -> bool:
    return await is_reachable(client) and await client.get("key") == "first"
