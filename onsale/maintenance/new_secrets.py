"""`onsale keys new`: creates the secrets of a new installation, a file each, as ONSALE_SECRETS_DIR expects them."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from onsale.atomic_file import atomic_write
from onsale.cli.context import out
from onsale.errors import OperatorError
from onsale.local import key_file
from onsale.maintenance import service_secrets
from shared.routes import SERVICES_WITH_TABLES

Port = Annotated[int, typer.Option(min=1, max=65535, help="Its port.")]


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder to create; it must not exist, or be empty.")
    ],
    postgres_host: Annotated[str, typer.Option(help="Where the services reach PostgreSQL.")] = "postgres",
    postgres_port: Port = 5432,
    postgres_user: Annotated[str, typer.Option(help="The user that owns the tables.")] = "onsale",
    postgres_database: Annotated[str, typer.Option(help="The database that holds them.")] = "onsale",
    redis_host: Annotated[str, typer.Option(help="Where the services reach Redis or Valkey.")] = "valkey",
    redis_port: Port = 6379,
    per_service: Annotated[
        bool, typer.Option("--per-service", help="Also a folder a service, and a database role a service.")
    ] = False,
) -> None:
    """Create the secrets of a new installation, a file each: keys, an admin key, passwords of PostgreSQL and Valkey.

    Give the folder to the services as ONSALE_SECRETS_DIR, and its keys.json as ONSALE_KEYS_FILE. valkey_auth.conf
    belongs into the configuration of Valkey or Redis; for a server with a password, write its URL to onsale_redis_url.
    psql runs postgres_roles.sql, which creates the database and its plain owners.

    With --per-service each service gets a folder of its own, with what it needs and nothing else; the rest is yours.
    Keep a copy in a safe place: without these keys no order page opens again.

    Example: onsale keys new secrets --postgres-host db.internal
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OperatorError(f"{folder} is not empty: secrets are never overwritten. Name a new folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    password, redis_password, admin_key = (secrets.token_urlsafe(length) for length in (24, 24, 32))
    created = {name: value for name, value in key_file.service_secrets(folder).items() if name != "ONSALE_KEYS_FILE"}
    created |= {
        "POSTGRES_PASSWORD": password,
        "POSTGRES_SUPERUSER_PASSWORD": secrets.token_urlsafe(24),
        "ONSALE_REDIS_URL": f"redis://:{redis_password}@{_bracketed(redis_host)}:{redis_port}/0",
        "VALKEY_AUTH.CONF": f"requirepass {redis_password}\nmasterauth {redis_password}",
        "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key}",
    }
    owners = {"onsale": (postgres_user, password)}
    if per_service:
        owners = {name: (f"{postgres_user}_{name}", secrets.token_urlsafe(24)) for name in SERVICES_WITH_TABLES}
    for name, (role, its_password) in owners.items():
        url = _postgres_url(role, its_password, postgres_host, postgres_port, postgres_database)
        created[f"{name.upper()}_POSTGRES_URL"] = url
    created["POSTGRES_ROLES.SQL"] = _roles(list(owners.values()), postgres_database)
    for name, value in created.items():
        atomic_write(folder / name.lower(), value + "\n")
    out.print(f"{len(created) + 1} files in {folder}; the admin key is in onsale_admin_keys", soft_wrap=True)
    if per_service:
        split(folder)


def split(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `onsale keys new` made.")],
) -> None:
    """Write a folder of secrets for each service, again after a file was added or changed. Rotation does it by itself.

    Example: onsale keys split deploy/secrets
    """
    out.print(f"A folder each for {', '.join(service_secrets.split(folder))}, in {folder}", soft_wrap=True)


def _postgres_url(role: str, password: str, host: str, port: int, database: str) -> str:
    from sqlalchemy import URL

    url = URL.create("postgresql+asyncpg", username=role, password=password, host=host, port=port, database=database)
    return url.render_as_string(hide_password=False)


def _roles(owners: list[tuple[str, str]], database: str) -> str:
    """For psql, as often as one likes: plain roles, and the database in which each makes the schema that it owns."""
    named = _quoted(database)
    lines = ["-- Run by psql as a superuser. Roles and database that exist stay as they are."]
    for role, password in owners:
        create = f"CREATE ROLE {_quoted(role)} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '{password}'"
        lines.append(f"{_unless('pg_roles', 'rolname', role, create)}")
    owner = f" OWNER {_quoted(owners[0][0])}" if len(owners) == 1 else ""
    lines.append(_unless("pg_database", "datname", database, f"CREATE DATABASE {named}{owner}"))
    lines.append(f"REVOKE ALL ON DATABASE {named} FROM PUBLIC;")
    lines += [f"GRANT CONNECT, CREATE, TEMPORARY ON DATABASE {named} TO {_quoted(role)};" for role, _ in owners]
    return "\n".join(lines)


def _unless(catalogue: str, column: str, name: str, statement: str) -> str:
    exists = f"EXISTS (SELECT FROM {catalogue} WHERE {column} = {_literal(name)})"
    return f"SELECT {_literal(statement)} WHERE NOT {exists} \\gexec"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _bracketed(host: str) -> str:
    """The host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
