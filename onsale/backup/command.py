"""`onsale backup`, `onsale restore`, `onsale snapshot`: what an operator, cron or a cluster's CronJob calls."""

import asyncio
import os
import shutil
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from onsale.backup.copying import PLAIN_WORDS
from onsale.backup.folder import BadBackup, keep_days, keep_newest
from onsale.backup.ledgers import all_named, running_ledgers
from onsale.backup.manifest import Manifest
from onsale.backup.restoring import bring_back, readable, require_room
from onsale.backup.taking import take_backup, take_snapshot
from onsale.commands import events as commands_events
from onsale.commands.context import DATA_DIR, DataDir, out
from onsale.local.engines import start_engines
from onsale.local.key_file import ADMIN_KEY_FILE, KEY_FILE
from shared.runtime.secrets_dir import FOLDER_VARIABLE, postgres_urls, with_files

Place = Annotated[Path, typer.Argument(metavar="TO", help="The folder that collects them; each is a folder in it.")]
Events = Annotated[list[Path] | None, typer.Option("--event", help="An event file to keep with it; may be repeated.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say only where it is.")]


def backup(
    place: Place,
    data_dir: DataDir = DATA_DIR,
    event: Events = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Remove all but the newest so many.")] = None,
    quiet: Quiet = False,
) -> None:
    """Keep everything that cannot be had again, while the suite sells: each service's ledger, the keys, event files.

    Ledgers are those in ONSALE_POSTGRES_URL (or QUEUE_…, INVENTORY_…, ORDERS_POSTGRES_URL), else that of the data
    directory. Redis is not kept: it is filled from the ledger. The backup holds secrets and fans' addresses: it is
    readable by you alone, and should stay so wherever you take it.
    """
    files = _files(data_dir, event or [], os.environ)

    async def work() -> Path:
        async with running_ledgers(data_dir, os.environ) as urls:
            return await take_backup(urls, files, place, say=_progress(quiet))

    kept = _run(work())
    gone = keep_newest(place, keep) if keep else []
    out.print(f"Kept in {kept}" + (f"; {len(gone)} older removed" if gone else ""), soft_wrap=True)


def snapshot(
    place: Place,
    data_dir: DataDir = DATA_DIR,
    days: Annotated[
        int | None, typer.Option("--keep-days", min=1, help="Remove those older than so many days.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write seat maps and configuration as CSV, to read and to compare: rooms, sections, seats, prices, their changes.

    Small enough for every day. Holds promo codes and operators' names, but no key and no fan; nothing is restored from
    it.
    """

    async def work() -> Path:
        async with running_ledgers(data_dir, os.environ) as urls:
            return await take_snapshot(urls, place, say=_progress(quiet))

    kept = _run(work())
    gone = keep_days(place, days, datetime.now(UTC)) if days else []
    out.print(f"Kept in {kept}" + (f"; {len(gone)} older removed" if gone else ""), soft_wrap=True)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FROM", help="One backup: a folder that `onsale backup` made.")],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="A new data directory for `onsale up`; must be empty.")
    ] = DATA_DIR,
    quiet: Quiet = False,
) -> None:
    """Bring a backup back: into an empty data directory, or into empty databases named in ONSALE_POSTGRES_URL (or one a
    service). Every file is checked first; if anything fails, the data directory is as it was.

    What happened after the backup was taken is not in it: see docs/backup.md before you open the doors.
    """
    manifest = readable(folder)
    with _new_data_dir(data_dir) as part:
        _run(_restore(manifest, folder, part, quiet=quiet))
    rows = sum(table.rows for schema in manifest.schemas for table in schema.tables)
    as_of = max(schema.as_of for schema in manifest.schemas)
    files = f"{len(manifest.files)} files of keys, secrets and events"
    out.print(f"{rows:,} rows as of {as_of:%Y-%m-%d %H:%M:%S}Z are back; {files} are in {data_dir}", soft_wrap=True)


async def _restore(manifest: Manifest, folder: Path, part: Path, *, quiet: bool) -> None:
    say = _progress(quiet)
    for kept in manifest.files:
        kind, name = kept.file.split("/")
        place = part / name if kind == "keys" else part / kind / name
        place.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(folder / kept.file, place)
        place.chmod(0o600)
    redis_url = with_files(os.environ).get("ONSALE_REDIS_URL")
    engines = None if all_named(os.environ) else await start_engines(part)
    try:
        urls = postgres_urls(os.environ, engines.engines.postgres_url if engines else None)
        await require_room(urls, redis_url)
        await bring_back(manifest, folder, urls, say=say)
    finally:
        if engines:
            await engines.stop()


@contextmanager
def _new_data_dir(data_dir: Path) -> Iterator[Path]:
    """A folder that becomes the data directory when all is well, and goes when it is not."""
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise BadBackup(f"{data_dir} is not empty: name a new one with --data-dir.")
    whole = data_dir.absolute()
    part = whole.with_name(f".{whole.name}.restoring-{os.getpid()}")
    part.mkdir(mode=0o700, parents=True)
    try:
        yield part
        part.replace(whole)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _files(data_dir: Path, events: list[Path], environ: Mapping[str, str]) -> dict[str, Path]:
    """What is kept beside the ledgers, by the name it has in the backup."""
    files = {f"keys/{name}": data_dir / name for name in (KEY_FILE, ADMIN_KEY_FILE) if (data_dir / name).exists()}
    if named := environ.get("ONSALE_KEYS_FILE"):
        files[f"keys/{KEY_FILE}"] = Path(named)
    if secrets := environ.get(FOLDER_VARIABLE):
        with_files(environ)  # it can be read, and is no heap
        found = sorted(path for path in Path(secrets).iterdir() if not path.name.startswith(".") and path.is_file())
        files |= {f"secrets/{path.name}": path for path in found}
    for path in events:
        commands_events.read(path)
        if f"events/{path.name}" in files:
            raise BadBackup(f"Two event files are called {path.name}.")
        files[f"events/{path.name}"] = path
    return files


def _progress(quiet: bool) -> Any:
    return (lambda line: None) if quiet else (lambda line: out.print(f"[dim]{line}[/]"))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except PLAIN_WORDS as trouble:
        raise BadBackup(f"{type(trouble).__name__}: {trouble}") from trouble
