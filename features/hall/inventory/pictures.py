"""The pictures of an event: uploaded one by one under the name that the event file uses, and served by their digest.

A name holds one picture: uploading another replaces it, on a running sale within a second. Those that the event file no
longer names go when it is applied.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial

from pydantic import BaseModel
from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    bindparam,
    delete,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from features.hall.picture_files import PictureFile, picture_file
from services.inventory import tables
from shared.audit_log import Actor, of_event
from shared.concurrency.coalescing import CachedReads
from shared.errors.problems import InvalidRequest, NotFound

PICTURES_MAX = 8  # of an event
KEPT_S, KEPT_MAX, READS_MAX = 3600.0, 64, 8
FACTS = ("media_type", "width", "height", "digest")
LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('picture:' || :event_id, 0))")
picture = Table(
    "picture",
    tables.metadata,
    Column("event_id", Text),
    Column("name", Text),
    Column("media_type", Text, nullable=False),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("digest", Text, nullable=False, comment="Of the content; names it in addresses."),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("event_id", "name"),
)
_picture = picture.c


class PictureStored(BaseModel):
    """A picture of an event as it is stored, and whether that changed anything."""

    event_id: str
    name: str
    changed: bool
    media_type: str
    width: int
    height: int
    digest: str


async def facts_of(connection: AsyncConnection, event_ids: Collection[str]) -> Mapping[str, dict[str, PictureFile]]:
    """What is known of the events' pictures without reading them, by event and name."""
    query = select(_picture.event_id, _picture.name, *(_picture[name] for name in FACTS))
    found = defaultdict[str, dict[str, PictureFile]](dict)
    for event_id, name, *facts in await connection.execute(query.where(_picture.event_id.in_(event_ids))):
        found[event_id][name] = PictureFile(*facts)
    return found


class Pictures:
    """Stores and reads pictures. What fans look at stays in memory: at most `KEPT_MAX` pictures."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._contents: CachedReads[bytes] = CachedReads(kept_s=KEPT_S, keys_max=KEPT_MAX, in_flight_max=READS_MAX)

    async def store(self, event_id: str, name: str, content: bytes, *, actor: str, reason: str | None) -> PictureStored:
        """Raises `InvalidRequest` for what is no picture, and for a ninth one. Storing it again changes nothing."""
        try:
            found = picture_file(content)
        except ValueError as wrong:
            raise InvalidRequest(f"{name}: {wrong}.") from wrong
        async with self._db.begin() as connection:
            await connection.execute(LOCK, {"event_id": event_id})
            query = select(_picture.name, _picture.digest).where(_picture.event_id == event_id)
            stored = {row.name: row.digest for row in await connection.execute(query)}
            if name not in stored and len(stored) >= PICTURES_MAX:
                raise InvalidRequest(f"An event has at most {PICTURES_MAX} pictures.")
            changed = stored.get(name) != found.digest
            if changed:
                values = dict(zip(FACTS, found, strict=True)) | {"content": content}
                row = insert(picture).values(event_id=event_id, name=name, **values)
                await connection.execute(row.on_conflict_do_update(index_elements=["event_id", "name"], set_=values))
                await _note_change(connection, event_id, name, found, actor=actor, reason=reason)
        return PictureStored(event_id=event_id, name=name, changed=changed, **found._asdict())

    async def read(self, event_id: str, name: str) -> tuple[str, bytes]:
        """The type and the content of the picture of this name. Raises `NotFound`."""
        mine = _picture.event_id == event_id, _picture.name == name
        async with self._db.connect() as connection:
            query = select(_picture.media_type, _picture.content).where(*mine)
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound
        return row.media_type, row.content

    async def content(self, event_id: str, digest: str) -> bytes:
        """The content with this digest. Raises `NotFound`."""
        return await self._contents.get(f"{event_id} {digest}", partial(self._content, event_id, digest))

    async def _content(self, event_id: str, digest: str) -> bytes:
        query = select(_picture.content).where(_picture.event_id == event_id, _picture.digest == digest).limit(1)
        async with self._db.connect() as connection:
            content: bytes | None = (await connection.execute(query)).scalar()
        if content is None:
            raise NotFound
        return content

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._contents.close()


async def keep_only(connection: AsyncConnection, event_id: str, names: Collection[str]) -> None:
    """Deletes the event's other pictures. Raises `InvalidRequest` if one of these was not uploaded."""
    await connection.execute(LOCK, {"event_id": event_id})
    others = _picture.event_id == event_id, _picture.name.not_in(bindparam("names", expanding=True))
    await connection.execute(delete(picture).where(*others), {"names": list(names)})
    stored = (await connection.execute(select(_picture.name).where(_picture.event_id == event_id))).scalars().all()
    if missing := sorted(set(names) - set(stored)):
        raise InvalidRequest(
            f"brand: {', '.join(missing)} was not uploaded. Use `onsale events apply`, or first PUT each picture to "
            f"/admin/inventory/events/{event_id}/pictures/NAME."
        )


async def _note_change(
    connection: AsyncConnection, event_id: str, name: str, stored: PictureFile, *, actor: str, reason: str | None
) -> None:
    """Raises the version of an event that exists, so that every process reads the picture, and writes the audit log."""
    mine = tables.event.c.event_id == event_id
    raised = update(tables.event).where(mine).values(version=tables.event.c.version + 1)
    version = (await connection.execute(raised.returning(tables.event.c.version))).scalar()
    await tables.audit_log.write(
        connection, "picture", Actor(actor, reason), subject=of_event(event_id), version=version,
        after={"picture": name, "digest": stored.digest},
    )  # fmt: skip
