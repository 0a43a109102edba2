"""`onsale keys new`: the secrets of a new installation, a file each, as ONSALE_SECRETS_DIR wants them."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import URL

from onsale.commands.context import out
from onsale.local import key_file
from onsale.local.process import EngineTrouble
from onsale.local.secret_file import write_secret

Port = Annotated[int, typer.Option(min=1, max=65535, help="Its port.")]


def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Made here; must not be there yet, or be empty.")],
    postgres_host: Annotated[str, typer.Option(help="Where the services reach PostgreSQL.")] = "postgres",
    postgres_port: Port = 5432,
    postgres_user: Annotated[str, typer.Option(help="The user that owns the tables.")] = "onsale",
    postgres_database: Annotated[str, typer.Option(help="The database that holds them.")] = "onsale",
) -> None:
    """Make every secret of a new installation, a file each: keys, an admin key, the password of PostgreSQL.

    Give the folder to the services as ONSALE_SECRETS_DIR, and its keys.json as ONSALE_KEYS_FILE. Keep a copy in a safe
    place: without these keys no order page opens again.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EngineTrouble(f"{folder} is not empty: secrets are never written over others.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    password, admin_key = secrets.token_urlsafe(24), secrets.token_urlsafe(32)
    made = {name: value for name, value in key_file.service_secrets(folder).items() if name != "ONSALE_KEYS_FILE"}
    made |= {
        "POSTGRES_PASSWORD": password,
        "ONSALE_POSTGRES_URL": URL.create(
            "postgresql+asyncpg", postgres_user, password, postgres_host, postgres_port, postgres_database
        ).render_as_string(hide_password=False),
        "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key}",
    }
    for name, value in made.items():
        write_secret(folder / name.lower(), value + "\n")
    out.print(f"{len(made) + 1} files in {folder}; the admin key stands in onsale_admin_keys", soft_wrap=True)
