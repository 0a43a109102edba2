"""Takes a backup, and the smaller snapshot of seat maps and configuration, while the suite sells."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from onsale.backup.copying import copy_file, copy_out, quoted
from onsale.backup.folder import NAME, new_folder
from onsale.backup.ledgers import ORDER, Still, standing_still, tables_of
from onsale.backup.manifest import KeptSchema, KeptSequence, KeptTable, Manifest
from shared.postgres.schema_version import REACHED
from shared.web.app import VERSION

Say = Callable[[str], None]
SEQUENCES = "SELECT sequencename::text FROM pg_sequences WHERE schemaname = $1 ORDER BY 1"
SHOWN: Mapping[str, tuple[str, ...]] = {
    "queue": ("room", "lane", "room_change"),
    "inventory": ("event", "section", "seat", "allotment", "allotment_ga", "stock_change"),
    "orders": ("event", "event_price", "promo_code", "price_change", "checkout_share", "operator_change"),
}


async def take_backup(urls: Mapping[str, str], files: Mapping[str, Path], place: Path, *, say: Say) -> Path:
    """Everything; `files` are to be kept under these names. Where it is."""
    began_at = datetime.now(UTC)
    with new_folder(place, began_at) as folder:
        async with standing_still(urls) as ledgers:
            schemas = [await _keep(service, ledgers[service], folder, say) for service in ORDER]
        kept = [copy_file(path, folder, name) for name, path in sorted(files.items())]
        ended_at = datetime.now(UTC)
        Manifest(onsale=VERSION, began_at=began_at, ended_at=ended_at, schemas=schemas, files=kept).write(folder)
    return place / began_at.strftime(NAME)


async def _keep(service: str, still: Still, folder: Path, say: Say) -> KeptSchema:
    connection, tables = still.connection, []
    for name, columns in await tables_of(connection, service):
        rows_of = partial(connection.copy_from_table, name, schema_name=service, columns=columns)
        kept, rows = await copy_out(rows_of, folder, f"{service}/{name}.copy.gz")
        tables.append(KeptTable(**kept.model_dump(), table=name, columns=columns, rows=rows))
        say(f"{service}.{name}: {rows:,} rows, {kept.bytes:,} bytes")
    sequences = [await _sequence(still, service, row[0]) for row in await connection.fetch(SEQUENCES, service)]
    return KeptSchema.model_validate({
        "service": service, "revision": await connection.fetchval(REACHED.format(service=service)),
        "postgres": await connection.fetchval("SHOW server_version"), "as_of": still.as_of,
        "tables": tables, "sequences": sequences,
    })  # fmt: skip


async def _sequence(still: Still, service: str, name: str) -> KeptSequence:
    state = f"SELECT last_value, is_called FROM {quoted(service, name)}"  # noqa: S608 - a quoted name
    row = await still.connection.fetchrow(state)
    return KeptSequence(name=name, last_value=row["last_value"], is_called=row["is_called"])


async def take_snapshot(urls: Mapping[str, str], place: Path, *, say: Say) -> Path:
    """Seat maps and configuration as CSV, to read, to compare, and to mend by hand; no fan, no secret. Where it is."""
    began_at = datetime.now(UTC)
    with new_folder(place, began_at) as folder:
        async with standing_still(urls) as ledgers:
            for service, tables in SHOWN.items():
                await _show(service, tables, ledgers[service], folder, say)
    return place / began_at.strftime(NAME)


async def _show(service: str, tables: Sequence[str], still: Still, folder: Path, say: Say) -> None:
    for table in tables:
        everything = f"SELECT * FROM {quoted(service, table)} ORDER BY 1, 2"  # noqa: S608 - a quoted name
        rows_of = partial(still.connection.copy_from_query, everything, format="csv", header=True)
        _, rows = await copy_out(rows_of, folder, f"{service}/{table}.csv.gz")
        say(f"{service}.{table}: {rows:,} rows")
