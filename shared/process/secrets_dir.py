"""Settings from files: `ONSALE_SECRETS_DIR` names a folder, mounted by an orchestrator, with one file per variable.

A file is named as its variable, in any case (`ONSALE_POSTGRES_URL`, `queue_pass_keys`). The environment wins.

A folder or file that cannot be read stops the start. The source of secret files in pydantic-settings only warns of a
missing folder and of links that lead out of it, so a service would start with a laptop's default; it has no limit on
the size of a file, and commands (`postgres_urls`) have no settings class.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic_settings import BaseSettings, EnvSettingsSource

from shared.errors.database import WrongDatabase
from shared.features import services
from shared.routes import SERVICES_WITH_TABLES

FOLDER_VARIABLE = "ONSALE_SECRETS_DIR"
FILES_MAX, FILE_MAX_BYTES = 500, 64 * 1024


class BadSecrets(Exception):
    """The folder of secrets, or one of its files, cannot be read; the message never shows its content."""


def with_files(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, completed from the files, whose trailing line end is dropped. Raises `BadSecrets`."""
    folder = environ.get(FOLDER_VARIABLE)
    if not folder:
        return dict(environ)
    try:
        files = [path for path in sorted(Path(folder).iterdir()) if not path.name.startswith(".") and path.is_file()]
        if len(files) > FILES_MAX:
            raise BadSecrets(f"{FOLDER_VARIABLE}={folder}: more than {FILES_MAX} files.")
        return {path.name.upper(): _content(path) for path in files} | dict(environ)
    except (OSError, UnicodeDecodeError) as broken:
        reason = broken.strerror if isinstance(broken, OSError) else "a file is not UTF-8 text"
        raise BadSecrets(f"{FOLDER_VARIABLE}={folder}: {reason}.") from None


def _content(path: Path) -> str:
    if path.stat().st_size > FILE_MAX_BYTES:
        raise BadSecrets(f"{path}: larger than {FILE_MAX_BYTES // 1024} KiB.")
    return path.read_text(encoding="utf-8").rstrip("\r\n")


class WithFiles(EnvSettingsSource):
    """A settings source: variables under a prefix, from the environment and the files."""

    def __init__(self, settings_cls: type[BaseSettings], prefix: str | None = None) -> None:
        super().__init__(settings_cls, env_prefix=prefix)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in with_files(os.environ).items()}


def postgres_urls(environ: Mapping[str, str], default: str | None = None) -> dict[str, str]:
    """The PostgreSQL URL of each installed service: `<SERVICE>_POSTGRES_URL`, `default`, or `ONSALE_POSTGRES_URL`.

    Raises `WrongDatabase` if a service has none, or `BadSecrets`.
    """
    known = with_files(environ)
    urls: dict[str, str] = {}
    for service in (name for name in SERVICES_WITH_TABLES if name in services()):
        own = f"{service.upper()}_POSTGRES_URL"
        if not (url := known.get(own) or default or known.get("ONSALE_POSTGRES_URL")):
            raise WrongDatabase(
                f"The database of {service} is not set. Set ONSALE_POSTGRES_URL, or {own} for a database of its own."
            )
        urls[service] = url.replace("postgresql+asyncpg://", "postgresql://", 1)
    return urls
