"""The operators' book of codes: made once and told once, listed by what is known of them, revoked for good."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import case, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.queue.access.access_codes import code_hash, fresh_code
from services.queue.problems import LaneTakesNoCodes, TooManyCodes
from services.queue.rooms.audit_log import record
from services.queue.rooms.model import WaitingRoom
from services.queue.tables import code
from shared.postgres.engine import AsyncEngine

CODES_MAX = 1_000_000
ID_BYTES = 8


class Entry(NamedTuple):
    """What is known of a code: not the code itself. `uses` are of the present epoch."""

    code_id: str
    lane: int
    uses_max: int
    uses: int
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True)
class AccessCodeStore:
    """Codes of all events."""

    db: AsyncEngine

    async def create(
        self, room: WaitingRoom, *, lane: int, count: int, uses: int, actor: str, reason: str | None
    ) -> list[str]:
        """New codes, each good for `uses` places in `lane`. Nobody can read them again. Raises `LaneTakesNoCodes`,
        `TooManyCodes`.
        """
        if not any(one.lane == lane and one.code_required for one in room.options.lanes):
            raise LaneTakesNoCodes
        fresh = [fresh_code() for _ in range(count)]
        rows = [
            {"event_id": room.event_id, "code_hash": code_hash(room.event_id, text), "lane": lane, "uses_max": uses,
             "epoch": room.epoch, "uses": 0}
            for text in fresh
        ]  # fmt: skip
        async with self.db.begin() as connection:
            kept = select(func.count()).select_from(code).where(code.c.event_id == room.event_id)
            if (await connection.execute(kept)).scalar_one() + count > CODES_MAX:
                raise TooManyCodes
            await connection.execute(insert(code), rows)
            after = {"lane": lane, "count": count, "uses": uses}
            await record(connection, room, actor=actor, action="codes create", reason=reason, after=after)
        return fresh

    async def page(self, room: WaitingRoom, *, lane: int | None, page: int, page_size: int) -> tuple[int, list[Entry]]:
        """How many codes there are, and one page of them, newest first."""
        wanted = [code.c.event_id == room.event_id, *([code.c.lane == lane] if lane is not None else [])]
        uses = case((code.c.epoch == room.epoch, code.c.uses), else_=0).label("uses")
        columns = (code.c.code_hash, code.c.lane, code.c.uses_max, uses, code.c.created_at, code.c.revoked_at)
        order = (code.c.created_at.desc(), code.c.code_hash)
        async with self.db.connect() as connection:
            total = (await connection.execute(select(func.count()).select_from(code).where(*wanted))).scalar_one()
            listed = select(*columns).where(*wanted).order_by(*order).limit(page_size).offset((page - 1) * page_size)
            rows = (await connection.execute(listed)).fetchall()
        return total, [Entry(row[0][:ID_BYTES].hex(), *row[1:]) for row in rows]

    async def revoke(
        self,
        room: WaitingRoom,
        *,
        hashes: Collection[bytes] = (),
        ids: Collection[str] = (),
        actor: str,
        reason: str | None,
    ) -> int:
        """Takes codes back, named by themselves or by their ids; how many stood until now. Places stay."""
        named = code.c.code_hash.in_(hashes) | func.substr(code.c.code_hash, 1, ID_BYTES).in_(map(bytes.fromhex, ids))
        gone = update(code).where(code.c.event_id == room.event_id, code.c.revoked_at.is_(None), named)
        async with self.db.begin() as connection:
            revoked = (await connection.execute(gone.values(revoked_at=func.clock_timestamp()))).rowcount
            if revoked:
                await record(
                    connection, room, actor=actor, action="codes revoke", reason=reason, after={"count": revoked}
                )
        return revoked
