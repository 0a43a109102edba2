"""Folders of secrets, one a service, each with what that service needs and nothing else.

The folder itself keeps everything and belongs to the operators alone. A service that is broken into then gives away its
own secrets: only the queue can sign passes, only orders tickets; no service has an operator's key, only its hash, or
the password of another service's tables. `service` and Redis' password are everybody's: services call one another.
"""

import json
from pathlib import Path
from typing import NamedTuple

from onsale.atomic_file import atomic_write
from onsale.errors import OperatorError
from onsale.local import key_file
from shared.routes import SERVICES, SERVICES_WITH_TABLES, Service
from shared.security.key_rotation import Purpose

OWN_PREFIXES = {service: f"{service}_" for service in SERVICES}
FOR_USERS = ("onsale_holder_keys", "onsale_user_jwt_secret")
DATABASE_FILES = ("postgres_superuser_password", "postgres_roles.sql", "valkey_auth.conf")
ADMIN_KEYS, POSTGRES_URL = "onsale_admin_keys", "onsale_postgres_url"


class Needs(NamedTuple):
    """The rotating keys that a service signs or verifies with, those of which it needs the public half, and files."""

    rings: tuple[Purpose, ...] = ("service",)
    public: tuple[Purpose, ...] = ()
    files: tuple[str, ...] = ()


NEEDS: dict[Service, Needs] = {
    "gateway": Needs(("service", "queue_token"), ("pass", "ticket"), FOR_USERS),
    "queue": Needs(("service", "pass"), (), ("onsale_checkout_keys",)),
    "inventory": Needs(("service", "queue_token"), ("pass",), FOR_USERS),
    "orders": Needs(
        ("service", "ticket"),
        ("pass",),
        (*FOR_USERS, "onsale_customer_keys", "onsale_order_token_keys", "onsale_sandbox_webhook_keys"),
    ),
    "notifier": Needs(("service", "queue_token"), ("pass",), (*FOR_USERS, "onsale_order_token_keys")),
    "console": Needs(),
}


def split(folder: Path) -> list[str]:
    """Writes the folders of the services, of `migrate` and of `databases` anew; their names."""
    if not (folder / key_file.KEY_FILE).is_file():
        raise OperatorError(f"{folder} has no {key_file.KEY_FILE}. Name a folder that `onsale keys new` made.")
    superuser, owner = folder / "postgres_superuser_password", folder / "postgres_password"
    if not superuser.exists() and owner.exists():  # from before the tables' owner was a plain role
        atomic_write(superuser, owner.read_text())
    files = {path.name.lower(): path.read_text() for path in folder.iterdir() if path.is_file() and path.name[0] != "."}
    for service, needs in NEEDS.items():
        _write(folder / service, _files_of(service, needs, files))
    _write(folder / "migrate", {name: text for name, text in files.items() if name.endswith("_postgres_url")})
    _write(folder / "databases", {name: files[name] for name in DATABASE_FILES if name in files})
    refresh(folder)
    return [*NEEDS, "migrate", "databases"]


def refresh(folder: Path) -> None:
    """Gives each service that has a folder the present keys that rotate."""
    keys = key_file.rotating_keys(folder)
    for service, needs in NEEDS.items():
        if (folder / service).is_dir():
            part = keys.part(needs.rings, public=needs.public)
            content = json.dumps({key_file.ROTATING: part.model_dump()}, indent=2) + "\n"
            atomic_write(folder / service / key_file.KEY_FILE, content)


def _files_of(service: Service, needs: Needs, files: dict[str, str]) -> dict[str, str]:
    """Its own, those it needs, and settings of all services that are nobody's secret in particular, such as URLs."""
    of_some = {ADMIN_KEYS, POSTGRES_URL, *(name for each in NEEDS.values() for name in each.files)}
    for_all = {name for name in files if name.startswith("onsale_") and name not in of_some}
    wanted = for_all | {*needs.files} | {name for name in files if name.startswith(OWN_PREFIXES[service])}
    if service in SERVICES_WITH_TABLES and f"{service}{POSTGRES_URL.removeprefix('onsale')}" not in files:
        wanted.add(POSTGRES_URL)
    found = {name: files[name] for name in wanted if name in files}
    if ADMIN_KEYS in files:
        from shared.security.auth import AdminKeys

        found[ADMIN_KEYS] = AdminKeys(files[ADMIN_KEYS].strip()).hashed() + "\n"
    return found


def _write(folder: Path, files: dict[str, str]) -> None:
    """Makes the folder hold these files; what else it held, except the keys that rotate, is deleted."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in {*files, key_file.KEY_FILE}:
            path.unlink()
    for name, text in files.items():
        atomic_write(folder / name, text)
