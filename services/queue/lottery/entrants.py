"""The entrants of a lottery: a Merkle hash over all of them, and a proof of entry for each that reveals no other."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import select

from services.queue.line.repository import LineRepository
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.ranking import of_epoch
from services.queue.rooms.store import Rooms
from services.queue.tables import lottery
from shared.contracts.lottery import Entrants, EntryProof
from shared.contracts.queue import ProofQuestion
from shared.errors.problems import BadCredential, NotEntered, StaleEpoch
from shared.postgres.engine import AsyncConnection, statement
from shared.rules.lottery_ranking import CHUNK, leaf, path, receipt, root

ENTRANTS = statement(__package__, "entrants")
DIGEST_HEX = 64


async def count_entrants(
    connection: AsyncConnection, room: WaitingRoom, blind: bytes, lane: int, entrants_n: int
) -> tuple[Entrants, str]:
    """The entrants of a lane, and the hash of each chunk of them, concatenated as hex."""
    branches, taken = [], 0
    for first in range(1, entrants_n + 1, CHUNK):
        leaves, receipts = await _chunk(
            connection, room, blind, lane, first=first, last=min(entrants_n, first + CHUNK - 1)
        )
        branches.append(root(leaves))
        taken += len(receipts)
    entrants = Entrants(n=entrants_n, taken=taken, hash=root(branches).hex())
    return entrants, b"".join(branches).hex()


async def prove_entry(rooms: Rooms, question: ProofQuestion) -> EntryProof:
    """Proves that this place's entry number was counted with its holder. Raises `NotEntered`, `StaleEpoch`."""
    room, place = await rooms.get(question.event_id), question.place
    if room.epoch != question.epoch:
        raise StaleEpoch
    here = (of_epoch(room.event_id, room.epoch), lottery.c.counted_at.is_not(None))
    async with rooms.db.connect() as connection:
        row = (await connection.execute(select(lottery).where(*here))).first()
        if row is None:
            raise NotEntered("The entrants of this lottery are still being counted. Try again later.")
        entrants_n = row.entrants.get(str(place.lane), {"n": 0})["n"]
        if place.join_seq > entrants_n:
            raise NotEntered("This place joined after entry had closed.")
        places = await LineRepository(connection, room.event_id, room.epoch).get_places([(place.lane, place.join_seq)])
        if not places or places[place.lane, place.join_seq].holder != place.holder:
            raise BadCredential("This place belongs to somebody else.")
        chunk, at = divmod(place.join_seq - 1, CHUNK)
        first = chunk * CHUNK + 1
        leaves, receipts = await _chunk(
            connection, room, row.blind, place.lane, first=first, last=min(entrants_n, first + CHUNK - 1)
        )
    branches = _split(row.branches[str(place.lane)])
    return EntryProof(
        event_id=room.event_id,
        epoch=room.epoch,
        lane=place.lane,
        entry=place.join_seq,
        entrants_n=entrants_n,
        receipt=receipts[place.join_seq],
        path=[*path(leaves, at), *path(branches, chunk)],
    )


async def _chunk(
    connection: AsyncConnection, room: WaitingRoom, blind: bytes, lane: int, *, first: int, last: int
) -> tuple[Sequence[bytes], dict[int, str]]:
    """The leaves of these entry numbers, and the receipts of those that have a holder."""
    which = {"event_id": room.event_id, "epoch": room.epoch, "lane": lane, "first": first, "last": last}
    holders = {row.join_seq: row.holder for row in await connection.execute(ENTRANTS, which)}
    return await asyncio.to_thread(_leaves, blind, lane, range(first, last + 1), holders)


def _leaves(blind: bytes, lane: int, entries: range, holders: dict[int, str]) -> tuple[Sequence[bytes], dict[int, str]]:
    receipts = {entry: receipt(blind, lane, entry, holder) for entry, holder in holders.items()}
    return [leaf(lane, entry, receipts.get(entry)) for entry in entries], receipts


def _split(branches: str) -> list[bytes]:
    return [bytes.fromhex(branches[i : i + DIGEST_HEX]) for i in range(0, len(branches), DIGEST_HEX)]
