"""Deployment files name nothing that the code does not have: settings, commands, options, probes, ports, neighbours."""

import importlib
import os
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer
from sqlalchemy import make_url

from onsale.cli import app as cli
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API
from onsale.sandbox.__main__ import _parser
from shared.runtime.settings import ServiceSettings
from shared.web.app import create_service
from shared.web.routes import SERVICES
from tests.deploy.manifests import OVERLAYS, Ran, compose, in_compose, in_kubernetes
from tests.support.running.command_line import Command, command_line

NOT_SETTINGS = {"ONSALE_SECRETS_DIR"}
LISTS = {"compose": list(in_compose()), **{overlay: list(in_kubernetes(overlay)) for overlay in OVERLAYS}}
ALL = [pytest.param(ran, id=f"{where}-{ran.name}") for where, listed in LISTS.items() for ran in listed]
SERVING = [
    pytest.param(ran, id=f"{where}-{ran.name}") for where, listed in LISTS.items() for ran in listed if ran.service
]
PROBES = set(
    create_service("any", ServiceSettings(), title="any", lifespan=lambda app: nullcontext()).openapi()["paths"]
)
ENDS_S = 10.0  # loops, connections


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of secrets, as a person makes it."""
    folder = tmp_path_factory.mktemp("secrets") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["onsale", "keys", "new", str(folder)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 0
    return folder


def settings_class(service: str) -> type:
    module = importlib.import_module(f"services.{service}.settings")
    return next(c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)


def known_variables() -> set[str]:
    """The name of every setting of every service."""
    found = set(NOT_SETTINGS)
    for service in SERVICES:
        for name in settings_class(service).model_fields:  # type: ignore[attr-defined]
            found |= {f"{service.upper()}_{name.upper()}", f"ONSALE_{name.upper()}"}
    return found


@pytest.mark.parametrize("where", LISTS)
def test_every_service_runs_and_migrations_and_backups(where: str) -> None:
    assert {ran.service for ran in LISTS[where]} >= set(SERVICES)
    assert {ran.words[0] for ran in LISTS[where]} >= {"serve", "migrate", "backup", "deploy-config"}


@pytest.mark.parametrize("ran", ALL)
def test_every_setting_exists(ran: Ran) -> None:
    ours = {name for name in ran.environment if name.startswith(("ONSALE_", *(f"{s.upper()}_" for s in SERVICES)))}
    assert not ours - known_variables()


@pytest.mark.parametrize("ran", ALL)
def test_every_command_and_option_exists(ran: Ran) -> None:
    commands = typer.main.get_command(cli.app)
    name, *words = ran.words
    command = commands.commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, words).params is not None
    if ran.service:
        assert ran.service in SERVICES


@pytest.mark.parametrize("ran", SERVING)
def test_a_service_takes_its_settings_in_production(ran: Ran, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the secrets that `onsale keys new` makes, and those a person adds."""
    for name in os.environ:
        if name.startswith("ONSALE_"):
            monkeypatch.delenv(name)
    for name, value in ran.environment.items():
        monkeypatch.setenv(
            name, value.replace("/run/secrets/onsale", str(secrets)) if name != "PATH" else os.environ[name]
        )
    monkeypatch.setenv("ORDERS_STRIPE_SECRET_KEY", "sk_test_1")
    monkeypatch.setenv("ORDERS_STRIPE_WEBHOOK_SECRETS", "whsec_1")
    app = importlib.import_module(f"services.{ran.service}.app").create_app()
    settings = app.state.settings
    assert settings.environment == "production"
    assert "onsale:" in settings.postgres_url, "the password is a file"
    assert (settings.host, settings.port, settings.internal_port) == ("0.0.0.0", 8000, 9000)
    assert ran.healthy, "somebody looks after it"
    assert set(ran.healthy) <= PROBES
    drains_s = settings.drain_delay_s + getattr(settings, "drain_s", 0) + settings.shutdown_grace_s
    assert ran.ends_within_s >= drains_s + ENDS_S, "it is killed before it has drained"


@pytest.mark.parametrize("ran", SERVING)
def test_neighbours_are_asked_where_they_answer(ran: Ran) -> None:
    for service in SERVICES_WITH_INTERNAL_API:
        assert (
            ran.environment[f"ONSALE_{service.upper()}_URL"]
            == f"http://{service}:{ran.environment['ONSALE_INTERNAL_PORT']}"
        )


@pytest.mark.parametrize("where", LISTS)
def test_the_balancer_is_told_of_every_service_at_its_ports(where: str) -> None:
    [told] = [ran for ran in LISTS[where] if ran.words[0] == "deploy-config"]
    inside = {service: "/9000" if service in SERVICES_WITH_INTERNAL_API else "" for service in SERVICES}
    expected = {f"--process={service}={service}:8000{inside[service]}" for service in SERVICES}
    assert {word for word in told.words if word.startswith("--process=")} == expected


def test_the_rehearsals_provider_is_where_orders_looks_for_it() -> None:
    sandbox = compose()["services"]["sandbox"]
    assert sandbox["entrypoint"] == ["python", "-m", "onsale.sandbox"]
    assert sandbox["network_mode"] == "service:orders"
    port = _parser().parse_args(sandbox["command"]).port
    default = settings_class("orders").model_fields["sandbox_url"].default  # type: ignore[attr-defined]
    assert urlsplit(default).netloc == f"127.0.0.1:{port}"


def test_secrets_are_their_owners_alone_and_never_made_twice(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale: Command = command_line(monkeypatch, capsys)
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    again = onsale("keys", "new", str(secrets))
    assert (again.returncode, "never overwritten" in again.stderr) == (2, True)


def test_the_database_of_a_new_installation_is_where_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale, place = command_line(monkeypatch, capsys), tmp_path / "secrets"
    where = {"host": "::1", "port": "6543", "user": "sale@night", "database": "tickets"}
    options = [word for name, value in where.items() for word in (f"--postgres-{name}", value)]
    assert onsale("keys", "new", str(place), *options).returncode == 0
    url = make_url((place / "onsale_postgres_url").read_text().strip())
    assert (url.host, url.port, url.username, url.database) == ("::1", 6543, "sale@night", "tickets")
    assert url.password == (place / "postgres_password").read_text().strip()
