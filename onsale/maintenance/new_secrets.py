"""`onsale keys new`: creates the secrets of a new installation, a file each, as ONSALE_SECRETS_DIR expects them."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from onsale.atomic_file import atomic_write
from onsale.cli.context import out
from onsale.errors import OperatorError
from onsale.local import key_file

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
) -> None:
    """Create the secrets of a new installation, a file each: keys, an admin key, passwords of PostgreSQL and Valkey.

    Give the folder to the services as ONSALE_SECRETS_DIR, and its keys.json as ONSALE_KEYS_FILE. valkey_auth.conf
    belongs into the configuration of Valkey or Redis; for a server with a password, write its URL to onsale_redis_url.
    Keep a copy in a safe place: without these keys no order page opens again.

    Example: onsale keys new secrets --postgres-host db.internal
    """
    from sqlalchemy import URL

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OperatorError(f"{folder} is not empty: secrets are never overwritten. Name a new folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    password, redis_password, admin_key = (secrets.token_urlsafe(length) for length in (24, 24, 32))
    created = {name: value for name, value in key_file.service_secrets(folder).items() if name != "ONSALE_KEYS_FILE"}
    created |= {
        "POSTGRES_PASSWORD": password,
        "ONSALE_POSTGRES_URL": URL.create(
            "postgresql+asyncpg",
            username=postgres_user,
            password=password,
            host=postgres_host,
            port=postgres_port,
            database=postgres_database,
        ).render_as_string(hide_password=False),
        "ONSALE_REDIS_URL": f"redis://:{redis_password}@{_bracketed(redis_host)}:{redis_port}/0",
        "VALKEY_AUTH.CONF": f"requirepass {redis_password}\nmasterauth {redis_password}",
        "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key}",
    }
    for name, value in created.items():
        atomic_write(folder / name.lower(), value + "\n")
    out.print(f"{len(created) + 1} files in {folder}; the admin key is in onsale_admin_keys", soft_wrap=True)


def _bracketed(host: str) -> str:
    """The host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
