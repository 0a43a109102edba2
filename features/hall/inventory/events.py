"""What an event has of this feature: its map, its brand and its pictures, stored with its file and shown with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from features.hall.brand import Brand
from features.hall.hall_layout import Block
from features.hall.hall_map import MAP_SEATS_MAX, HallMap, digest, hall_geometry
from features.hall.inventory.pictures import facts_of, keep_only
from features.hall.picture_files import PictureFile
from features.hall.rules import HallFields
from services.inventory import tables
from services.inventory.layout.layout import Layout
from services.inventory.store.change import StockChange
from shared.contracts.catalogue import BrandDetails, ShownPicture
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.seat_labels import stored_labels
from shared.contracts.file_parts import part_of
from shared.errors.problems import Problem

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
            encoded = hall_geometry(blocks, hall_map, labels).model_dump_json().encode()
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
