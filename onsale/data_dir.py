"""Files of a data directory that say where its suite answers: `engines.json`, `admin.key`, Prometheus' targets.

Every command reads them before it can ask the suite, so this module imports the standard library only.
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onsale.atomic_file import atomic_write
from onsale.errors import OperatorError

ENGINES_FILE, ADMIN_KEY_FILE, TARGETS_FILE = "engines.json", "admin.key", "prometheus-targets.json"
STARTED_FILE = "engines/started"  # exists while the suite runs and its event files are applied


@dataclass(frozen=True)
class Engines:
    """The addresses in `engines.json`. `postgres_url` names SQLAlchemy's asyncpg driver."""

    postgres_url: str
    redis_url: str
    sandbox_url: str | None = None


def write_engines_file(data_dir: Path, engines: Engines, sandbox_url: str | None, *, url: str | None = None) -> None:
    """Writes `<data-dir>/engines.json` for `psql`, `redis-cli` and scripts, readable by its owner only."""
    places = {
        "postgres_url": with_driver(engines.postgres_url),
        "redis_url": engines.redis_url,
        "sandbox_url": sandbox_url,
        "url": url,
    }
    atomic_write(data_dir / ENGINES_FILE, json.dumps(places, indent=2) + "\n")


def read_engines_file(data_dir: Path) -> Engines:
    """The addresses of the last `onsale up` on this data directory. Raises `OperatorError`."""
    path = data_dir / ENGINES_FILE
    try:
        places = json.loads(path.read_text(encoding="utf-8"))
        return Engines(
            postgres_url=with_driver(places["postgres_url"], "asyncpg"),
            redis_url=places["redis_url"],
            sandbox_url=places["sandbox_url"],
        )
    except FileNotFoundError as problem:
        raise OperatorError(f"Nothing has run in {data_dir} yet: there is no {ENGINES_FILE}") from problem
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise OperatorError(f"{path} cannot be read: {problem}") from problem


def suite_url(data_dir: Path) -> str:
    """The address of the last suite on this data directory; port 8000 if none ever ran here."""
    path = data_dir / ENGINES_FILE
    known = json.loads(path.read_text()).get("url") if path.exists() else None
    return known or "http://localhost:8000"


def write_scrape_targets(data_dir: Path, processes: Mapping[str, str]) -> None:
    """Writes `<data-dir>/prometheus-targets.json` for file-based service discovery; `processes` has the internal
    address of each by its name.

    A process is one target, whatever services it runs: they share one registry, and six targets would count everything
    six times.
    """
    targets = [{"targets": [address], "labels": {"process": name}} for name, address in processes.items()]
    atomic_write(data_dir / TARGETS_FILE, json.dumps(targets, indent=2) + "\n")


def admin_key(data_dir: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The operator's key: `ONSALE_ADMIN_KEY`, else that of the data directory, created on first use."""
    if key := environ.get("ONSALE_ADMIN_KEY"):
        return key
    path = data_dir / ADMIN_KEY_FILE
    if not path.exists():
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


def with_driver(postgres_url: str, driver: str = "") -> str:
    """The same address for SQLAlchemy's `driver`; without one the plain form that psql and asyncpg read."""
    _, found, rest = postgres_url.partition("://")
    if not found:
        raise ValueError("this is not the URL of a PostgreSQL server")
    return f"postgresql+{driver}://{rest}" if driver else f"postgresql://{rest}"
