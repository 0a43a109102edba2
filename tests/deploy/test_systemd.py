"""The units in `deploy/systemd` fit the code, pass systemd's own checks, and give a service few rights."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onsale.cli import app as cli
from shared.routes import SERVICES
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_containers import CLOSE_S, known_variables, settings_class
from tests.support.programs import needs

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
