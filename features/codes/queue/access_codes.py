"""Access codes, which open a lane: created, listed and revoked by operators, validated and redeemed by joins.

A code is redeemed in the transaction that inserts the place, so there is never a place without its use or a use without
its place. A code is 80 random bits, is shown only when it is created, and only its hash is stored, so the database does
not reveal it. It is good for a number of places in an epoch; the same holder may use it again until they have bought.
Every change is in the audit log.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    case,
    func,
    insert,
    select,
    update,
)

from features.codes.schemas import (
    AccessCodePage,
    AccessCodeView,
    CodeId,
    CreateAccessCodes,
    CreatedAccessCodes,
    RevokeAccessCodes,
    RevokedAccessCodes,
)
from services.queue.line.rules import OpenedLanes
from services.queue.metrics import JOIN_REFUSED
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.state import State, StateDep
from services.queue.tables import audit_log, metadata
from shared.audit_log import of_event
from shared.concurrency.background import Loops
from shared.contracts.fields import code_key
from shared.errors.problems import Problem
from shared.postgres.engine import raw_statement
from shared.postgres.pages import LongPageSizeQuery, PageRequest
from shared.runtime.metrics import with_series
from shared.security.auth import AnOperator, Viewer
from shared.web.parts import Part
from shared.web.request import EventIdPath

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # without I, L, O and U, which people misread
GROUPS, GROUP_CHARS = 4, 4
_READ_AS = str.maketrans({"I": "1", "L": "1", "O": "0"})
CODES_MAX = 1_000_000
HASH_BYTES = 32
ID_BYTES = 8  # of the hash: enough to name a code, not enough to guess one
UNKNOWN, USED_UP = "code-unknown", "code-used-up"  # problems of the gateway's part
with_series(JOIN_REFUSED, reason=[UNKNOWN, USED_UP])

FOR_UPDATE = "FOR UPDATE OF access_code"
CODES, CODE_USES, REDEEM_CODES = (
    raw_statement(__package__, verb) for verb in ("access_codes", "access_code_uses", "redeem_codes")
)

access_code = Table(
    "access_code",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("code_hash", LargeBinary, primary_key=True),
    Column("lane", SmallInteger, nullable=False),
    Column("uses_max", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("uses", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("revoked_at", DateTime(timezone=True)),
    CheckConstraint("uses BETWEEN 0 AND uses_max", name="uses"),
    Index("ix_access_code_created_at", "event_id", "created_at", "code_hash"),
    Index("ix_access_code_lane", "event_id", "lane", "created_at", "code_hash"),
)

access_code_use = Table(
    "access_code_use",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("code_hash", LargeBinary, primary_key=True),
    Column("holder", Text, primary_key=True),
    Column("lane", SmallInteger, nullable=False),
    Column("join_seq", BigInteger, nullable=False),
)


class LaneTakesNoCodes(Problem, status=422):
    """There is no such lane, or it does not require a code."""


class TooManyCodes(Problem, status=409):
    """The event has reached the limit of access codes."""


def new_code() -> str:
    """A random code in groups that a person can copy: `7K3M-Q0ZD-4XWA-90TB`."""
    groups = ("".join(secrets.choice(ALPHABET) for _ in range(GROUP_CHARS)) for _ in range(GROUPS))
    return "-".join(groups)


def code_hash(event_id: str, code: str) -> bytes:
    """The stored hash of a code. Case, spaces and dashes make no difference, nor do O for 0 and I or L for 1, nor what
    pasting adds: a code has letters and digits only.
    """
    letters = "".join(filter(str.isalnum, code_key(code)))
    return hashlib.sha256(f"onsale code {event_id} {letters.translate(_READ_AS)}".encode()).digest()


# -- at each join ------------------------------------------------------------------------------------------------------


class Code(NamedTuple):
    """A valid code: the lane it opens, and for how many places it is still good."""

    lane: int
    uses_left: int


class CodeBatch:
    """The codes of a batch of joins, by holder."""

    def __init__(self, room: WaitingRoom, codes: Mapping[str, str]) -> None:
        self.room, self._used_before = room, set[str]()
        self.hashes = {holder: code_hash(room.event_id, code) for holder, code in codes.items()}

    async def open(self, driver: Any, holders: Collection[str], *, lock: bool) -> OpenedLanes:
        """Which lane each holder's code opens; holders without a code are left out."""
        presented = {holder: self.hashes[holder] for holder in holders if holder in self.hashes}
        result, taken = OpenedLanes({}, {}), Counter[bytes]()
        if not presented:
            return result
        which = self.room.event_id, self.room.epoch
        rows = await driver.fetch(CODES + (FOR_UPDATE if lock else ""), *which, list(set(presented.values())))
        codes = {row["code_hash"]: Code(row["lane"], row["uses_max"] - row["uses"]) for row in rows}
        again = await driver.fetch(CODE_USES, *which, list(presented.values()), list(presented))
        self._used_before = {row["holder"] for row in again}
        for holder, name in presented.items():
            code, is_new_use = codes.get(name), holder not in self._used_before
            if code is None or code.lane not in self.room.lanes:
                result.refused[holder] = UNKNOWN
            elif is_new_use and taken[name] >= code.uses_left:
                result.refused[holder] = USED_UP
            else:
                taken[name] += is_new_use
                result.lanes[holder] = code.lane
        return result

    async def placed(self, driver: Any, lane: int, join_seqs: Mapping[str, int]) -> None:
        """Counts the uses."""
        coded = [holder for holder in join_seqs if holder in self.hashes]
        if coded:
            await driver.execute(
                REDEEM_CODES, self.room.event_id, self.room.epoch, lane, [self.hashes[h] for h in coded], coded,
                [join_seqs[h] for h in coded], [h not in self._used_before for h in coded],
            )  # fmt: skip


# -- for operators -----------------------------------------------------------------------------------------------------

router = APIRouter(prefix="/admin/queue/events/{event_id}/codes", tags=["admin"])


@router.post("", status_code=201, operation_id="create_access_codes", summary="Create access codes")
async def create(
    event_id: EventIdPath, request: CreateAccessCodes, operator: AnOperator, state: StateDep
) -> CreatedAccessCodes:
    """The codes are shown only in this answer."""
    room = await state.rooms.read(event_id)
    if not any(one.lane == request.lane and one.code_required for one in room.options.lanes):
        raise LaneTakesNoCodes
    codes = [new_code() for _ in range(request.count)]
    rows = [
        {"event_id": event_id, "code_hash": code_hash(event_id, text), "lane": request.lane, "uses_max": request.uses,
         "epoch": room.epoch, "uses": 0}
        for text in codes
    ]  # fmt: skip
    async with state.rooms.db.begin() as connection:
        lock = func.pg_advisory_xact_lock(func.hashtextextended("access codes " + event_id, 0))
        await connection.execute(select(lock))
        stored = select(func.count()).select_from(access_code).where(access_code.c.event_id == event_id)
        if (await connection.execute(stored)).scalar_one() + request.count > CODES_MAX:
            raise TooManyCodes
        await connection.execute(insert(access_code), rows)
        after = {"lane": request.lane, "count": request.count, "uses": request.uses}
        await audit_log.write(
            connection, "codes create", RequestedBy(operator.name, request.reason), subject=of_event(event_id),
            version=room.version, after=after,
        )  # fmt: skip
    return CreatedAccessCodes(codes=codes)


@router.get("", operation_id="list_access_codes", summary="List access codes")
async def page(
    request: Request, event_id: EventIdPath, _operator: Viewer, state: StateDep,
    lane: Annotated[int | None, Query(ge=1, le=15)] = None,
    before: Annotated[CodeId | None, Query()] = None, page_size: LongPageSizeQuery = 50,
) -> AccessCodePage:  # fmt: skip
    """Newest first."""
    room, page = await state.rooms.read(event_id), PageRequest(request.url, before, page_size)
    code, event = access_code.c, access_code.c.event_id == event_id
    uses = case((code.epoch == room.epoch, code.uses), else_=0).label("uses")
    listed = select(code.code_hash, code.lane, code.uses_max, uses, code.created_at, code.revoked_at).where(event)
    if lane is not None:
        listed = listed.where(code.lane == lane)
    first = bytes.fromhex(page.cursor or "")
    cursor_row = event & code.code_hash.between(first, first.ljust(HASH_BYTES, b"\xff"))
    listed = page.rows_of(listed, code.created_at, code.code_hash, cursor_row=cursor_row)
    async with state.rooms.db.connect() as connection:
        rows = (await connection.execute(listed)).mappings()
        found = [AccessCodeView(code_id=row["code_hash"][:ID_BYTES].hex(), **row) for row in rows]
    codes, following = page.cut(found, lambda view: view.code_id)
    return AccessCodePage(codes=codes, next=following)


@router.post("/revoke", operation_id="revoke_access_codes", summary="Revoke access codes")
async def revoke(
    event_id: EventIdPath, request: RevokeAccessCodes, operator: AnOperator, state: StateDep
) -> RevokedAccessCodes:
    """Answers how many were valid until now; unknown and already revoked codes are not counted."""
    room = await state.rooms.read(event_id)
    code_id = func.substr(access_code.c.code_hash, 1, ID_BYTES)
    hashes = [code_hash(event_id, text) for text in request.codes]
    named = access_code.c.code_hash.in_(hashes) | code_id.in_(map(bytes.fromhex, request.code_ids))
    valid = update(access_code).where(access_code.c.event_id == event_id, access_code.c.revoked_at.is_(None), named)
    async with state.rooms.db.begin() as connection:
        revoked = (await connection.execute(valid.values(revoked_at=func.clock_timestamp()))).rowcount
        if revoked:
            await audit_log.write(
                connection, "codes revoke", RequestedBy(operator.name, request.reason), subject=of_event(event_id),
                version=room.version, after={"count": revoked},
            )  # fmt: skip
    return RevokedAccessCodes(revoked=revoked)


@asynccontextmanager
async def open_codes(state: State, loops: Loops) -> AsyncIterator[None]:
    """From now on, joins may bring codes."""
    state.rules.codes = CodeBatch
    yield


PART = Part(routers=[router], open=open_codes)
