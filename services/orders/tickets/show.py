"""What orders must know of a show to print and to write about it: taken from the event file, as everybody takes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.tickets.tables import event
from shared.contracts.event_file import EventFile
from shared.postgres.engine import AsyncConnection, AsyncEngine


@dataclass(frozen=True, slots=True)
class ShowInfo:
    """A show as it is printed. One whose file nobody has given us is called by its id."""

    event_id: str
    name: str
    venue: str = ""
    starts_at: datetime | None = None
    zone: str = "UTC"
    section_names: Mapping[str, str] | None = None

    @property
    def when(self) -> str:
        """In the words of its own clock, whatever the reader's is."""
        at = self.starts_at
        if at is None:
            return ""
        offset = at.strftime("%z")
        name = f"{self.zone.replace('_', ' ')}, " if "/" in self.zone else ""
        return f"{at:%A}, {at.day} {at:%B %Y}, {at:%H:%M} ({name}UTC{offset[:3]}:{offset[3:5]})"

    def place(self, section_id: str, seat_id: str | None) -> str:
        """A seat or a section as people say it."""
        name = (self.section_names or {}).get(section_id, section_id)
        if seat_id is None:
            return name
        _, row, number = seat_id.split("-")
        return f"{name}, row {row}, seat {number}"


async def apply(connection: AsyncConnection, file: EventFile, *, by: str) -> bool:
    """Whether it changed anything; in the caller's transaction."""
    told = {
        "name": file.name, "venue": file.venue, "starts_at": file.starts_at, "currency": file.currency,
        "timezone": file.zone,
        "section_names": {section.section_id: section.name for section in file.sections},
    }  # fmt: skip
    put = insert(event).values(event_id=file.event_id, applied_by=by, **told)
    differs = func.row(*(event.c[name] for name in told)).is_distinct_from(
        func.row(*(put.excluded[name] for name in told))
    )
    put = put.on_conflict_do_update(
        index_elements=[event.c.event_id],
        set_={**{name: put.excluded[name] for name in told}, "applied_by": by, "applied_at": func.now()},
        where=differs,
    )
    return bool((await connection.execute(put)).rowcount)


async def read(db: AsyncEngine, event_id: str) -> ShowInfo:
    """The show, or what we can say of one we know nothing about."""
    async with db.connect() as connection:
        row = (await connection.execute(select(event).where(event.c.event_id == event_id))).first()
    if row is None:
        return ShowInfo(event_id, event_id)
    starts_at = row.starts_at.astimezone(_clock(row.timezone))
    return ShowInfo(event_id, row.name, row.venue, starts_at, row.timezone, row.section_names)


def _clock(zone: str) -> tzinfo:
    """The clock of an IANA name or of an offset like `+09:00`."""
    if zone[0] in "+-":
        return datetime.strptime(zone, "%z").tzinfo or UTC
    return ZoneInfo(zone)
