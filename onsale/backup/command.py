"""`onsale backup`, `onsale restore` and `onsale snapshot`, for an operator, cron or a cluster's CronJob."""

import os
import shutil
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from onsale import event_files
from onsale.backup.create import DATABASE_ERRORS, take_backup, take_snapshot
from onsale.backup.databases import all_databases_named, running_databases
from onsale.backup.manifest import BadBackup, Manifest, keep_days, keep_newest, whole_folder
from onsale.backup.restore import load_databases, read_manifest, require_empty_databases
from onsale.cli.context import DATA_DIR, DataDir, out, run_async
from onsale.data_dir import ADMIN_KEY_FILE
from onsale.local.engines import start_databases
from onsale.local.key_file import KEY_FILE
from shared.process.secrets_dir import FOLDER_VARIABLE, postgres_urls, with_files

Place = Annotated[Path, typer.Argument(metavar="TO", help="The folder of all backups; each is a folder in it.")]
Events = Annotated[list[Path] | None, typer.Option("--event", help="An event file to include; may repeat.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only where the result is.")]


def backup(
    place: Place,
    data_dir: DataDir = DATA_DIR,
    event: Events = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Then remove all but this many of the newest.")] = None,
    quiet: Quiet = False,
) -> None:
    """Back up the tables of all services, the keys and event files, while the suite sells.

    The databases are those in ONSALE_POSTGRES_URL (or QUEUE_…, INVENTORY_…, ORDERS_POSTGRES_URL), else that of the data
    directory. Redis is not included: it is rebuilt from PostgreSQL. The backup holds secrets and fans' addresses: it is
    readable by you alone, and should stay so wherever you copy it.

    Example: onsale backup /var/backups/onsale --keep 7
    """
    files = _files(data_dir, event or [], os.environ)

    async def work() -> Path:
        async with running_databases(data_dir, os.environ) as urls:
            return await take_backup(urls, files, place, report=_reporter(quiet))

    folder = _run(work())
    gone = keep_newest(place, keep) if keep else []
    out.print(f"Written to {folder}" + (f"; {len(gone)} older removed" if gone else ""), soft_wrap=True)


def snapshot(
    place: Place,
    data_dir: DataDir = DATA_DIR,
    days: Annotated[
        int | None, typer.Option("--keep-days", min=1, help="Then remove those older than this many days.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Export seat maps and configuration as CSV: waiting rooms, sections, seats, prices and their changes.

    Small enough for every day. It holds promo codes and operators' names, but no keys and no fans' data. It cannot be
    restored.
    """

    async def work() -> Path:
        async with running_databases(data_dir, os.environ) as urls:
            return await take_snapshot(urls, place, report=_reporter(quiet))

    folder = _run(work())
    gone = keep_days(place, days, datetime.now(UTC)) if days else []
    out.print(f"Written to {folder}" + (f"; {len(gone)} older removed" if gone else ""), soft_wrap=True)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FROM", help="One backup: a folder that `onsale backup` wrote.")],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="A new data directory for `onsale up`; must be empty.")
    ] = DATA_DIR,
    quiet: Quiet = False,
) -> None:
    """Restore a backup into an empty data directory, or into the empty databases named in ONSALE_POSTGRES_URL.

    Every file is checked first; if anything fails, directory and databases are as empty as before. What happened after
    the backup was taken is not in it: read docs/operate/backup.md before you open the sale.

    Example: onsale restore /var/backups/onsale/20270305T120000Z --data-dir .onsale
    """
    manifest = read_manifest(folder)
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise BadBackup(f"{data_dir} is not empty: name a new one with --data-dir.")
    with whole_folder(data_dir.absolute()) as part:
        _run(_restore(manifest, folder, part, quiet=quiet))
    rows = sum(table.rows for schema in manifest.schemas for table in schema.tables)
    as_of = max(schema.as_of for schema in manifest.schemas)
    files = f"{len(manifest.files)} files of keys, secrets and events"
    out.print(f"{rows:,} rows as of {as_of:%Y-%m-%d %H:%M:%S}Z are restored; {files} are in {data_dir}", soft_wrap=True)


async def _restore(manifest: Manifest, folder: Path, part: Path, *, quiet: bool) -> None:
    report = _reporter(quiet)
    for kept in manifest.files:
        kind, name = kept.file.split("/")
        place = part / name if kind == "keys" else part / kind / name
        place.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(folder / kept.file, place)
        place.chmod(0o600)
    redis_url = with_files(os.environ).get("ONSALE_REDIS_URL")
    engines = None if all_databases_named(os.environ) else await start_databases(part)
    try:
        urls = postgres_urls(os.environ, engines.addresses.postgres_url if engines else None)
        await require_empty_databases(urls, redis_url)
        await load_databases(manifest, folder, urls, report=report)
    finally:
        if engines:
            await engines.stop()


def _files(data_dir: Path, events: list[Path], environ: Mapping[str, str]) -> dict[str, Path]:
    """The files to include besides the tables, by their name in the backup."""
    files = {f"keys/{name}": data_dir / name for name in (KEY_FILE, ADMIN_KEY_FILE) if (data_dir / name).exists()}
    if named := environ.get("ONSALE_KEYS_FILE"):
        files[f"keys/{KEY_FILE}"] = Path(named)
    if secrets := environ.get(FOLDER_VARIABLE):
        with_files(environ)  # raises when the folder cannot be used
        found = sorted(path for path in Path(secrets).iterdir() if not path.name.startswith(".") and path.is_file())
        files |= {f"secrets/{path.name}": path for path in found}
    for path in events:
        beside = event_files.pictures(path, event_files.read(path))
        for file in (path, *(path.parent / name for name in beside)):
            if files.setdefault(f"events/{file.name}", file) != file:
                raise BadBackup(f"Two event files are called {file.name}.")
    return files


def _reporter(quiet: bool) -> Any:
    return (lambda line: None) if quiet else (lambda line: out.print(f"[dim]{line}[/]"))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return run_async(work)
    except DATABASE_ERRORS as trouble:
        raise BadBackup(f"{type(trouble).__name__}: {trouble}") from trouble
