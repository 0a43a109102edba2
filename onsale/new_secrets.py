"""`onsale keys new`: the secrets of a new installation, a file each, as ONSALE_SECRETS_DIR wants them."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from onsale import key_file
from onsale.asking import out
from onsale.child import EngineTrouble
from onsale.secret_file import write_secret

USER = DATABASE = "onsale"


def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Made here; must not be there yet, or be empty.")],
    postgres_host: Annotated[str, typer.Option(help="Where the services reach PostgreSQL.")] = "postgres",
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
        "ONSALE_POSTGRES_URL": f"postgresql+asyncpg://{USER}:{password}@{postgres_host}:5432/{DATABASE}",
        "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key}",
    }
    for name, value in made.items():
        write_secret(folder / name.lower(), value + "\n")
    out.print(f"{len(made) + 1} files in {folder}; the admin key stands in onsale_admin_keys", soft_wrap=True)
