"""Containers of the deployment files use settings, commands, options, probes and ports that exist in the code.

compose.yaml fits its schema, names files that exist, and reads variables that `.env.example` explains.

The Dockerfile passes hadolint, copies existing files only, and installs every file of the package.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from sqlalchemy import make_url

from onsale.cli import app as cli
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API
from onsale.maintenance import new_secrets
from onsale.sandbox.__main__ import _parser
from shared.features import package_of
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES, Service
from shared.web.parts import with_settings_of_parts
from tests.deploy.test_kubernetes import (
    DEPLOY,
    ROOT,
    VALUES,
    Container,
    compose,
    compose_containers,
    image_environment,
    kubernetes_containers,
    objects,
)
from tests.support.programs import PROJECT, installed_with
from tests.support.running.program import Command, command_line

NOT_SETTINGS = {"ONSALE_SECRETS_DIR"}
DEPLOYMENTS = ("compose", *VALUES)
CLOSE_S = 10.0  # time to stop loops and close connections, after draining


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of secrets made by `onsale keys new`."""
    folder = tmp_path_factory.mktemp("secrets") / "new"
    new_secrets.new(folder)
    return folder


def settings_class(service: Service) -> type[ServiceSettings]:
    own: type[ServiceSettings] = importlib.import_module(f"{package_of(service)}.settings").Settings
    return with_settings_of_parts(own, service)


@cache
def containers(deployment: str) -> list[Container]:
    return list(compose_containers() if deployment == "compose" else kubernetes_containers(objects(deployment)))


def serving(deployment: str) -> list[Container]:
    return [container for container in containers(deployment) if container.service]


@cache
def known_variables() -> set[str]:
    """The name of every setting of every service."""
    names = set(NOT_SETTINGS)
    for service in SERVICES:
        for name in settings_class(service).model_fields:
            names |= {f"{service.upper()}_{name.upper()}", f"ONSALE_{name.upper()}"}
    return names


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_deployment_runs_every_service_migrations_and_backups(deployment: str) -> None:
    assert {container.service for container in containers(deployment)} >= set(SERVICES)
    commands = {container.command[0] for container in containers(deployment)}
    assert commands >= {"serve", "migrate", "backup", "deploy-config"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_setting_of_a_container_exists(deployment: str) -> None:
    prefixes = ("ONSALE_", *(f"{service.upper()}_" for service in SERVICES))
    named = {
        name for container in containers(deployment) for name in container.environment if name.startswith(prefixes)
    }
    assert not named - known_variables()


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_command_and_option_of_a_container_exists(deployment: str) -> None:
    for container in containers(deployment):
        name, *arguments = container.command
        command = cli.loaded(next(entry for entry in cli.commands() if entry.name == name))
        assert command.make_context(name, arguments).params is not None
    assert {container.service for container in serving(deployment)} <= set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_service_starts_with_its_production_settings(
    deployment: str, service: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets are those of `onsale keys new` and those that an operator adds."""
    [container] = [each for each in containers(deployment) if each.service == service]
    for name in os.environ:
        if name.startswith("ONSALE_"):
            monkeypatch.delenv(name)
    for name, value in container.environment.items():
        monkeypatch.setenv(
            name, value.replace("/run/secrets/onsale", str(secrets)) if name != "PATH" else os.environ[name]
        )
    monkeypatch.setenv("ORDERS_STRIPE_SECRET_KEY", "sk_test_1")
    monkeypatch.setenv("ORDERS_STRIPE_WEBHOOK_SECRETS", "whsec_1")
    app = importlib.import_module(f"{package_of(service)}.app").create_app()
    settings = app.state.settings
    assert settings.environment != "development"
    assert "onsale:" in settings.postgres_url, "the password comes from a file"
    assert urlsplit(settings.redis_url).password, "the password comes from a file"
    assert (settings.host, settings.port, settings.internal_port) == ("0.0.0.0", 8000, 9000)
    assert container.probe_paths, "no health check"
    assert set(container.probe_paths) <= app.openapi()["paths"].keys()
    drains_s = settings.drain_delay_s + getattr(settings, "drain_s", 0) + settings.shutdown_grace_s
    assert container.stop_grace_s >= drains_s + CLOSE_S, "it is killed before it has drained"


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_services_call_each_other_at_their_internal_ports(deployment: str) -> None:
    for container in serving(deployment):
        port = container.environment["ONSALE_INTERNAL_PORT"]
        for service in SERVICES_WITH_INTERNAL_API:
            assert container.environment[f"ONSALE_{service.upper()}_URL"] == f"http://{service}:{port}"


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_balancer_knows_every_service_at_its_ports(deployment: str) -> None:
    [balancer] = [container for container in containers(deployment) if container.command[0] == "deploy-config"]
    internal = {service: "/9000" if service in SERVICES_WITH_INTERNAL_API else "" for service in SERVICES}
    expected = {f"--process={service}={service}:8000{internal[service]}" for service in SERVICES}
    assert {argument for argument in balancer.command if argument.startswith("--process=")} == expected


def test_the_sandbox_provider_listens_at_the_default_url_of_orders() -> None:
    sandbox = compose()["services"]["sandbox"]
    assert sandbox["entrypoint"] == ["python", "-m", "onsale.sandbox"]
    assert sandbox["network_mode"] == "service:orders"
    port = _parser().parse_args(sandbox["command"]).port
    default = settings_class("orders").model_fields["sandbox_url"].default
    assert urlsplit(default).netloc == f"127.0.0.1:{port}"


def test_secrets_are_readable_by_their_owner_only_and_never_overwritten(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale: Command = command_line(monkeypatch, capsys)
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    again = onsale("keys", "new", str(secrets))
    assert (again.returncode, "never overwritten" in again.stderr) == (2, True)


def test_new_keys_contain_the_url_of_the_given_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale, folder = command_line(monkeypatch, capsys), tmp_path / "secrets"
    database = {"host": "::1", "port": "6543", "user": "sale@night", "database": "tickets"}
    options = [argument for name, value in database.items() for argument in (f"--postgres-{name}", value)]
    assert onsale("keys", "new", str(folder), *options).returncode == 0
    url = make_url((folder / "onsale_postgres_url").read_text().strip())
    assert (url.host, url.port, url.username, url.database) == ("::1", 6543, "sale@night", "tickets")
    assert url.password == (folder / "postgres_password").read_text().strip()


def test_new_keys_contain_the_url_of_the_given_redis_and_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale, folder = command_line(monkeypatch, capsys), tmp_path / "secrets"
    assert onsale("keys", "new", str(folder), "--redis-host", "::1", "--redis-port", "6380").returncode == 0
    url = urlsplit((folder / "onsale_redis_url").read_text().strip())
    assert (url.scheme, url.hostname, url.port, url.path) == ("redis", "::1", 6380, "/0")
    assert (folder / "valkey_auth.conf").read_text() == f"requirepass {url.password}\nmasterauth {url.password}\n"


def test_compose_fits_its_schema_and_names_files_that_exist() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command: list[str | Path] = [program, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in file["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./secrets"):
                continue
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in file["volumes"]
        assert set(service.get("networks", [])) <= set(file["networks"])
        assert set(service.get("depends_on", {})) <= set(file["services"])


def test_the_example_of_an_env_file_has_every_variable_of_compose_and_its_default() -> None:
    read = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", (DEPLOY / "compose.yaml").read_text()))
    assert "${" not in re.sub(r"\$\{\w+:-[^}]*\}", "", (DEPLOY / "compose.yaml").read_text()), "one has no default"
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    assert dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")) == read
    assert {
        line.split("=")[0] for line in (DEPLOY / "rehearsal.env").read_text().splitlines() if line[0] != "#"
    } <= set(read)


DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PACKAGES = ("shared", "services", "onsale", "features")
PRINT_SOURCES = """
from setuptools.dist import Distribution
package = Distribution({"script_name": "setup.py"})
package.parse_config_files()
files = package.get_command_obj("build_py")
files.ensure_finalized()
print(*files.get_source_files(), *(f"{folder}/{name}" for _, folder, _, names in files.data_files for name in names))
"""


def test_hadolint_reports_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([program, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_copied_files_exist_and_are_not_ignored() -> None:
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M) for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*", "files that are not named must be ignored"
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_installs_the_lock_file_and_runs_without_root_in_production() -> None:
    assert "pip install --no-deps --require-hashes --only-binary=:all: -r requirements.lock" in DOCKERFILE
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.M)
    assert image_environment()["ONSALE_ENVIRONMENT"] == "production"
    locked = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    production = installed_with("onsale")
    assert locked | {"onsale"} >= production
    assert not locked & (installed_with(*PROJECT["optional-dependencies"]["embedded"]) - production)


def test_the_package_contains_every_file_of_the_repository(tmp_path: Path) -> None:
    """Lua scripts, SQL files, migrations and pages too."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "tests", "*.md"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", PRINT_SOURCES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = {
        str(path.relative_to(tmp_path)) for name in PACKAGES for path in (tmp_path / name).rglob("*") if path.is_file()
    }
    assert set(result.stdout.split()) == expected
