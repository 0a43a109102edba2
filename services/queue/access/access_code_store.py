"""Stores the access codes of all events: operators create, list and revoke them.

A code is shown only when it is created, because only its hash is stored. Every change is in the audit log.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import case, func, insert, select, update

from services.queue.access.access_codes import code_hash, new_code
from services.queue.problems import LaneTakesNoCodes, TooManyCodes
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.tables import access_code, audit_log
from shared.audit_log import of_event
from shared.contracts.admin.queue import AccessCodePage, AccessCodeView
from shared.postgres.engine import AsyncEngine
from shared.postgres.pages import PageRequest

CODES_MAX = 1_000_000
HASH_BYTES = 32
ID_BYTES = 8  # of the hash: enough to name a code, not enough to guess one


@dataclass(frozen=True)
class AccessCodeStore:
    db: AsyncEngine

    async def create(self, room: WaitingRoom, by: RequestedBy, *, lane: int, count: int, uses: int) -> list[str]:
        """New codes, each good for `uses` places in `lane`. Raises `LaneTakesNoCodes`, `TooManyCodes`."""
        if not any(one.lane == lane and one.code_required for one in room.options.lanes):
            raise LaneTakesNoCodes
        codes = [new_code() for _ in range(count)]
        rows = [
            {"event_id": room.event_id, "code_hash": code_hash(room.event_id, text), "lane": lane, "uses_max": uses,
             "epoch": room.epoch, "uses": 0}
            for text in codes
        ]  # fmt: skip
        async with self.db.begin() as connection:
            lock = func.pg_advisory_xact_lock(func.hashtextextended("access codes " + room.event_id, 0))
            await connection.execute(select(lock))
            stored = select(func.count()).select_from(access_code).where(access_code.c.event_id == room.event_id)
            if (await connection.execute(stored)).scalar_one() + count > CODES_MAX:
                raise TooManyCodes
            await connection.execute(insert(access_code), rows)
            after = {"lane": lane, "count": count, "uses": uses}
            await audit_log.write(
                connection, "codes create", by, subject=of_event(room.event_id), version=room.version, after=after
            )
        return codes

    async def page(self, room: WaitingRoom, page: PageRequest[str], *, lane: int | None) -> AccessCodePage:
        """The codes, newest first. `uses` are of the present epoch."""
        code, event = access_code.c, access_code.c.event_id == room.event_id
        uses = case((code.epoch == room.epoch, code.uses), else_=0).label("uses")
        listed = select(code.code_hash, code.lane, code.uses_max, uses, code.created_at, code.revoked_at).where(event)
        if lane is not None:
            listed = listed.where(code.lane == lane)
        first = bytes.fromhex(page.cursor or "")
        cursor_row = event & code.code_hash.between(first, first.ljust(HASH_BYTES, b"\xff"))
        listed = page.rows_of(listed, code.created_at, code.code_hash, cursor_row=cursor_row)
        async with self.db.connect() as connection:
            rows = (await connection.execute(listed)).mappings()
            found = [AccessCodeView(code_id=row["code_hash"][:ID_BYTES].hex(), **row) for row in rows]
        codes, following = page.cut(found, lambda view: view.code_id)
        return AccessCodePage(codes=codes, next=following)

    async def revoke(
        self, room: WaitingRoom, by: RequestedBy, *, codes: Collection[str] = (), ids: Collection[str] = ()
    ) -> int:
        """Revokes codes, by their text or their ids; how many were valid until now. Places stay."""
        hashes = [code_hash(room.event_id, text) for text in codes]
        code_id = func.substr(access_code.c.code_hash, 1, ID_BYTES)
        named = access_code.c.code_hash.in_(hashes) | code_id.in_(map(bytes.fromhex, ids))
        valid = update(access_code).where(
            access_code.c.event_id == room.event_id, access_code.c.revoked_at.is_(None), named
        )
        async with self.db.begin() as connection:
            revoked = (await connection.execute(valid.values(revoked_at=func.clock_timestamp()))).rowcount
            if revoked:
                await audit_log.write(
                    connection, "codes revoke", by, subject=of_event(room.event_id), version=room.version,
                    after={"count": revoked},
                )  # fmt: skip
        return revoked
