"""Each service has a folder with the secrets that it needs, and no deployment file gives it another one."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from features.doctor.process import check_keys
from onsale.local import key_file
from onsale.local.engines import Engines
from onsale.maintenance import keys as key_commands
from onsale.maintenance import new_secrets, service_secrets
from shared.postgres.migrations import upgrade
from shared.process.settings import ServiceSettings
from shared.routes import SERVICES, SERVICES_WITH_TABLES, Service
from shared.security.auth import AdminKeys
from shared.security.key_reload import FIELDS, PUBLIC_FIELDS, KeyReloader
from shared.security.tokens import Keyring
from tests.deploy.test_containers import settings_class
from tests.deploy.test_kubernetes import DEPLOY, compose, objects, pods
from tests.support.programs import needs

COLUMNS = "rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"


def new(folder: Path, **options: Any) -> Path:
    defaults = {"postgres_host": "postgres", "postgres_port": 5432, "postgres_user": "onsale"}
    defaults |= {"postgres_database": "onsale", "redis_host": "valkey", "redis_port": 6379}
    new_secrets.new(folder, **{**defaults, "per_service": True, **options})
    return folder


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new(tmp_path_factory.mktemp("secrets") / "new")


def settings(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """The production settings of a service that has this folder."""
    for name in [name for name in os.environ if name.startswith(("ONSALE_", service.upper()))]:
        monkeypatch.delenv(name)
    for name, value in {
        "SECRETS_DIR": str(folder), "KEYS_FILE": str(folder / "keys.json"), "ENVIRONMENT": "production",
        "SECURE_COOKIES": "true", "STRIPE_SECRET_KEY": "sk_test_1", "STRIPE_WEBHOOK_SECRETS": "whsec_1",
        "PUBLIC_URL": "https://tickets.example", "PAYMENT_PROVIDERS": "stripe",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"ONSALE_{name}", value)
    return settings_class(service)()


def keyrings(service: Service) -> set[str]:
    made = settings_class(service)
    return {name for name, field in made.model_fields.items() if field.annotation is Keyring} - made.unread_keys


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_with_its_own_folder_alone(
    service: Service, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, every = settings(service, secrets / service, monkeypatch), settings(service, secrets, monkeypatch)
    for name in keyrings(service):
        assert getattr(own, name).keys == getattr(every, name).keys, "the same keys as of the whole folder"
    if service in SERVICES_WITH_TABLES:
        assert urlsplit(own.postgres_url).username == f"onsale_{service}"
    assert urlsplit(own.redis_url).password


@pytest.mark.parametrize("service", SERVICES)
def test_a_folder_has_nothing_that_its_service_does_not_read(service: Service, secrets: Path) -> None:
    needs, read = service_secrets.NEEDS[service], keyrings(service)
    assert set(needs.rings) == {FIELDS[name] for name in read if name in FIELDS}
    assert set(needs.public) == {PUBLIC_FIELDS[name] for name in read if name in PUBLIC_FIELDS}
    of_files = {name for name in read if name not in {**FIELDS, **PUBLIC_FIELDS}}
    assert {name.removeprefix("onsale_") for name in needs.files if name.endswith("_keys")} == of_files
    keys = json.loads((secrets / service / "keys.json").read_text())["rotating"]
    assert (set(keys["rings"]), set(keys["public"])) == (set(needs.rings), set(needs.public))
    files = {path.name for path in (secrets / service).iterdir()}
    tables = {f"{service}_postgres_url"} if service in SERVICES_WITH_TABLES else set()
    keyring_files = {name for name in needs.files if (secrets / name).exists()}
    assert files == {"keys.json", "onsale_admin_keys", "onsale_redis_url"} | tables | keyring_files
    assert {path.stat().st_mode & 0o777 for path in (secrets / service).iterdir()} == {0o600}


def test_secrets_that_forge_stand_with_their_signer_alone(secrets: Path) -> None:
    whole = json.loads((secrets / "keys.json").read_text())["rotating"]["rings"]
    admin_key = (secrets / "onsale_admin_keys").read_text().strip().split(":")[2]
    for secret, signers in (
        (whole["pass"][0]["secret"], {"queue"}), (whole["ticket"][0]["secret"], {"orders"}),
        (whole["queue_token"][0]["secret"], {"gateway", "inventory", "notifier"}), (admin_key, set()),
        ((secrets / "postgres_superuser_password").read_text().strip(), {"databases"}),
        ((secrets / "queue_postgres_url").read_text().strip(), {"queue", "migrate"}),
        ((secrets / "onsale_customer_keys").read_text().strip(), {"orders"}),
    ):  # fmt: skip
        holders = {path.parent.name for path in secrets.glob("*/*") if secret in path.read_text()}
        assert holders == signers


def test_a_service_knows_operators_by_the_hashes_of_their_keys(secrets: Path) -> None:
    text = (secrets / "onsale_admin_keys").read_text().strip()
    hashed = AdminKeys((secrets / "gateway" / "onsale_admin_keys").read_text().strip())
    name, role, secret = text.split(":")
    assert hashed.operator(secret) == AdminKeys(text).operator(secret) == (name, role)
    assert hashed.session(secret, now_s=0) == AdminKeys(text).session(secret, now_s=0)
    for wrong in ("a:admin:sha256=short-and-no-hash", "a:admin:sha256=" + "!" * 43):
        with pytest.raises(ValueError, match=r"sha256|base64url"):
            AdminKeys(wrong)


@pytest.mark.parametrize("service", SERVICES)
def test_doctor_names_secrets_that_a_service_does_not_need(
    service: Service, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [own] = check_keys(settings(service, secrets / service, monkeypatch))
    assert own.verdict == "ok"
    [every] = check_keys(settings(service, secrets, monkeypatch))
    assert (every.verdict, "also has secrets of other services" in every.found) == ("look", True)


def test_a_rotation_reaches_every_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new(tmp_path / "secrets")
    running = settings("inventory", folder / "inventory", monkeypatch)
    reloader = KeyReloader(folder / "inventory" / "keys.json", running, clock=lambda: time.time() + 60)
    before = running.pass_public_keys.kid  # type: ignore[attr-defined]
    key_commands.rotate("pass", folder, now=True)
    asyncio.run(reloader.reload())
    assert (before, running.pass_public_keys.kid) == ("k1", "k2")  # type: ignore[attr-defined]
    whole = key_file.rotating_keys(folder)
    assert running.pass_public_keys.keys == whole.keyring("pass", time.time() + 60).public().keys  # type: ignore[attr-defined]
    assert "public" not in json.loads((folder / "keys.json").read_text())["rotating"], "0.1.0 reads this file, too"


def test_splitting_adds_what_an_operator_put_there_to_whom_it_belongs(tmp_path: Path) -> None:
    folder = new(tmp_path / "secrets", per_service=False)
    (folder / "orders_stripe_secret_key").write_text("sk_live_1\n")
    (folder / "onsale_user_jwt_secret").write_text("u" * 40)
    (folder / "onsale_smtp_from").write_text("a@example.org")
    new_secrets.split(folder)
    for name, holders in (
        ("orders_stripe_secret_key", {"orders"}),
        ("onsale_user_jwt_secret", {"gateway", "inventory", "orders", "notifier"}),
        ("onsale_smtp_from", set(SERVICES)),
        ("onsale_postgres_url", {*SERVICES_WITH_TABLES, "migrate"}),
    ):
        assert {path.parent.name for path in folder.glob(f"*/{name}")} == holders
    (folder / "orders_stripe_secret_key").unlink()
    new_secrets.split(folder)
    assert not list(folder.glob("*/orders_stripe_secret_key"))


# -- the deployment files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", [*SERVICES, "migrate"])
def test_compose_mounts_for_a_service_its_own_folder(service: str) -> None:
    [mounted] = compose()["services"][service]["volumes"]
    assert mounted == f"./secrets/{service}:/run/secrets/onsale:ro"


@pytest.mark.parametrize("values", ["small", "production"])
def test_the_chart_mounts_for_a_service_its_own_secret(values: str) -> None:
    mounted = {
        name: {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        for name, pod in pods(objects(values))
    }
    for name, secrets in mounted.items():
        part = name.rpartition("/")[2].removesuffix("-1")
        if part in SERVICES or part == "migrate":
            assert secrets == {f"onsale-secrets-{part}"}, name
        elif part in ("postgres", "valkey"):
            assert secrets == {"onsale-secrets-databases"}, name
    shared = {
        volume["secret"]["secretName"]
        for _, pod in pods(objects(values, "--set", "secretPerService=false"))
        for volume in pod["volumes"] if "secret" in volume
    }  # fmt: skip
    assert shared == {"onsale-secrets"}


def test_a_unit_sees_its_own_folder_of_secrets_alone() -> None:
    for unit, name in (("onsale@.service", "%i"), ("onsale-migrate.service", "migrate")):
        lines = (DEPLOY / "systemd" / unit).read_text().splitlines()
        assert {"TemporaryFileSystem=/etc/onsale:ro", f"BindReadOnlyPaths=/etc/onsale/secrets/{name}"} <= set(lines)
        assert any(line.startswith(f"Environment=ONSALE_SECRETS_DIR=/etc/onsale/secrets/{name}") for line in lines)


def test_no_deployment_makes_the_owner_of_the_tables_a_superuser() -> None:
    assert "POSTGRES_USER" not in compose()["services"]["postgres"]["environment"]
    chart = json.dumps(objects("small"))
    assert "POSTGRES_USER" not in chart
    assert "/docker-entrypoint-initdb.d" in chart


# -- a real PostgreSQL -------------------------------------------------------------------------------------------------


def _of(url: str, database: str) -> str:
    """The same server, with another database, as psql and asyncpg name it."""
    return urlunsplit(urlsplit(url.replace("+asyncpg", ""))._replace(path=f"/{database}"))


async def make_roles(engines: Engines, tmp_path: Path, name: str, *, per_service: bool) -> Path:
    """Makes roles as the file of `onsale keys new` says; the folder of the secrets."""
    server = urlsplit(engines.postgres_url)
    assert server.hostname is not None
    folder = new(
        tmp_path / "secrets", postgres_host=server.hostname, postgres_port=server.port, postgres_user=name,
        postgres_database=name, per_service=per_service,
    )  # fmt: skip
    admin = _of(engines.postgres_url, "postgres")
    for _ in range(2):  # a second time nothing is left to do
        command = ["psql", admin, "-v", "ON_ERROR_STOP=1", "-q", "-f", str(folder / "postgres_roles.sql")]
        process = await asyncio.create_subprocess_exec(*command)
        assert await process.wait() == 0
    connection = await asyncpg.connect(admin)
    roles = await connection.fetch(f"SELECT {COLUMNS} FROM pg_roles WHERE rolname LIKE $1", f"{name}%")
    await connection.close()
    assert [tuple(role) for role in roles] == [(False,) * 5] * (len(SERVICES_WITH_TABLES) if per_service else 1)
    return folder


@needs("psql")
async def test_the_roles_of_services_migrate_and_read_no_other_service(engines: Engines, tmp_path: Path) -> None:
    """They sell in `proof/deploy/test_deploy_guide.py`."""
    folder = await make_roles(engines, tmp_path, "plain", per_service=True)
    urls = {service: (folder / f"{service}_postgres_url").read_text().strip() for service in SERVICES_WITH_TABLES}
    for service, url in urls.items():
        await upgrade(url, service)
    connection = await asyncpg.connect(_of(urls["queue"], "plain"))
    owners = {tuple(row) for row in await connection.fetch("SELECT schemaname, tableowner FROM pg_tables")}
    assert {(schema, f"plain_{schema}") for schema in SERVICES_WITH_TABLES} <= owners
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute('SELECT 1 FROM orders."order"')
    await connection.close()
