"""What an event has of this feature: its map, its brand and its pictures, stored with its file and shown with it.

Pictures are uploaded one by one under the name that the event file uses, and served by their digest. A name holds one
picture: uploading another replaces it, on a running sale within a second. Those that the event file no longer names go
when it is applied.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    RowMapping,
    Table,
    Text,
    bindparam,
    delete,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from features.hall.brand import Brand, PictureFile, PictureStored, picture_file
from features.hall.hall_map import MAP_SEATS_MAX, Block, HallMap, digest, hall_geometry
from features.hall.rules import HallFields
from services.inventory import tables
from services.inventory.layout.layout import Layout
from services.inventory.store.change import StockChange
from shared.audit_log import Actor, of_event
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import BrandDetails, ShownPicture
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.seat_labels import stored_labels
from shared.contracts.file_parts import part_of
from shared.errors.problems import InvalidRequest, NotFound, Problem

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


URLS = {"help_url", "terms_url", "imprint_url", "privacy_url"}


class NoMap(Problem, status=404):
    """This event has too many numbered seats for a map."""


def map_order(layout: Layout) -> tuple[tuple[str, int], ...]:
    """The sections that have seats, and how many, in the order in which a hall's seats are counted: it does not change
    when the event file names its sections in another order.
    """
    return tuple((section_id, layout.sections[section_id].capacity) for section_id in sorted(layout.seated))


class EventHall:
    """Map, brand and pictures of one event; pictures by the name that the file has for them."""

    def __init__(self, hall_map: Any, brand: Any, pictures: Mapping[str, PictureFile]) -> None:
        self.brand = None if brand is None else Brand.model_validate(brand)
        self.pictures = pictures
        self._hall_map = hall_map
        self._drawn: tuple[bytes, str] | None = None

    def map(self, layout: Layout) -> tuple[bytes, str]:
        """The map of the hall, encoded once, and the hash that names it. Raises `NoMap`."""
        if self._drawn is None:
            if sum(seats for _, seats in map_order(layout)) > MAP_SEATS_MAX:
                raise NoMap
            sections = layout.sections.values()
            blocks = [Block(s.section_id, s.rows, s.seats_per_row, s.capacity) for s in sections]
            hall_map = None if self._hall_map is None else HallMap.model_validate(self._hall_map)
            labels = {s.section_id: s.labels for s in sections if s.labels != stored_labels(s.rows, s.seats_per_row)}
            traits = {s.section_id: s.traits for s in sections if s.traits}
            encoded = hall_geometry(blocks, hall_map, labels, traits).model_dump_json().encode()
            self._drawn = encoded, digest(encoded)
        return self._drawn

    def map_hash(self, layout: Layout) -> str | None:
        """The hash that names the map; None if there is none."""
        try:
            return self.map(layout)[1]
        except NoMap:
            return None

    def card(self, layout: Layout) -> Mapping[str, Any]:
        shown = self.brand and self.brand.picture
        return {"picture": self._picture(layout, shown.file, shown.alt) if shown else None}

    def details(self, layout: Layout) -> Mapping[str, Any]:
        return {"map_hash": self.map_hash(layout), "brand": self.brand and self._brand(layout, self.brand)}

    def _picture(self, layout: Layout, name: str, alt: str) -> ShownPicture | None:
        """None while this process has not read it."""
        stored = self.pictures.get(name)
        if stored is None:
            return None
        url = f"/events/{layout.event_id}/pictures/{stored.file}"
        return ShownPicture(url=url, width=stored.width, height=stored.height, alt=alt)

    def _brand(self, layout: Layout, brand: Brand) -> BrandDetails:
        accent, accent_dark = brand.own_accents or (None, None)
        style = brand.style_hash()
        return BrandDetails(
            **brand.model_dump(include={"name", "background", "background_dark", *URLS}),
            logo=self._picture(layout, brand.logo, brand.name or "") if brand.logo else None,
            accent=accent, accent_dark=accent_dark,
            stylesheet=f"/e/{layout.event_id}/brand.css?v={style}" if style else None,
        )  # fmt: skip


async def halls(connection: AsyncConnection, rows: Sequence[RowMapping]) -> Mapping[str, EventHall]:
    """What these events have, by id."""
    pictures = await facts_of(connection, [row["event_id"] for row in rows])
    return {row["event_id"]: EventHall(row["hall_map"], row["brand"], pictures[row["event_id"]]) for row in rows}


class HallOfFile:
    """Stores map and brand in the event's row, and deletes the pictures that the file no longer names."""

    async def store(self, change: StockChange, file: EventFile, *, dry_run: bool) -> bool:
        """Raises `InvalidRequest` for a picture that was not uploaded; a dry run comes before they are."""
        own = part_of(file, HallFields)
        wanted = {
            "hall_map": own.map and own.map.model_dump(mode="json"),
            "brand": own.brand and own.brand.model_dump(mode="json", exclude_none=True),
        }
        change.detail["event"] = wanted | {"hall_map": own.map and own.map.digest()}
        if not dry_run:
            await keep_only(change.connection, file.event_id, file.files)
        mine = update(tables.event).where(tables.event.c.event_id == file.event_id).values(**wanted)
        differs = or_(*(tables.event.c[name].is_distinct_from(value) for name, value in wanted.items()))
        return bool((await change.connection.execute(mine.where(differs))).rowcount)

    async def file_fields(self, connection: AsyncConnection, event: RowMapping) -> Mapping[str, Any]:
        return {"map": event["hall_map"], "brand": event["brand"]}
