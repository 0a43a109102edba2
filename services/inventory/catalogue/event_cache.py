"""The cache of every event's layout in this process.

Holds need prices and limits at once, so they never wait for PostgreSQL: `refresh` is called several times a second and
reads again only the events whose version or Redis epoch changed.
"""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.catalogue.layout import Layout
from services.inventory.catalogue.pictures import FACTS, facts
from shared.errors.problems import Unavailable, UnknownEvent


class EventCache:
    """Layouts by event."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._layouts: dict[str, Layout] = {}
        self._loaded = False

    def layout(self, event_id: str) -> Layout:
        """Raises `UnknownEvent`, or `Unavailable` while nothing has been read yet."""
        layout = self._layouts.get(event_id)
        if layout is None:
            raise UnknownEvent() if self._loaded else Unavailable()
        return layout

    def limits_customers(self, event_id: str) -> bool:
        """Whether the event has a limit that counts a customer's tickets or orders over all their holders, as far as is
        known here.
        """
        e = self._layouts.get(event_id)
        return e is None or any((e.tickets_per_customer, e.open_orders_per_customer, e.tour_tickets_per_customer))

    def layouts(self) -> list[Layout]:
        return list(self._layouts.values())

    async def check(self) -> None:
        if not self._loaded:
            raise Unavailable("The events have not been read yet. Try again shortly.")

    async def refresh(self) -> None:
        """Reads the events whose version or Redis epoch changed."""
        known = select(tables.event.c.event_id, tables.event.c.version, tables.event.c.redis_epoch)
        async with self._db.connect() as connection:
            current = {row.event_id: (row.version, row.redis_epoch) for row in await connection.execute(known)}
            cached = {layout.event_id: (layout.version, layout.redis_epoch) for layout in self._layouts.values()}
            changed = [event_id for event_id, at in current.items() if at != cached.get(event_id)]
            if changed:
                of_changed = tables.event.c.event_id.in_(changed)
                events = (await connection.execute(select(tables.event).where(of_changed))).mappings().all()
                query = select(tables.section).where(tables.section.c.event_id.in_(changed))
                rows = (await connection.execute(query.order_by(tables.section.c.ordinal))).mappings().all()
                named = select(tables.picture.c.event_id, tables.picture.c.name, *(tables.picture.c[f] for f in FACTS))
                pictures = (
                    (await connection.execute(named.where(tables.picture.c.event_id.in_(changed)))).mappings().all()
                )
                for event in events:
                    event_id = event["event_id"]
                    own = [row for row in rows if row["event_id"] == event_id]
                    shown = {row["name"]: facts(row) for row in pictures if row["event_id"] == event_id}
                    self._layouts[event_id] = Layout.from_rows(dict(event), map(dict, own), shown)
        for removed in self._layouts.keys() - current.keys():
            del self._layouts[removed]
        self._loaded = True
