"""Codes that open a lane, spent in the transaction that writes the place: a place without its use, or a use without its
place, cannot be.

A code is 80 random bits and only its hash is kept: nobody who reads the ledger can join with it. It is good for so many
places an epoch; the same holder may come again with it until he has bought.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from services.queue.rooms.model import WaitingRoom
from shared.postgres.engine import raw_statement

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # without I, L, O and U, which people misread
GROUPS, GROUP_CHARS = 4, 4
_READ_AS = str.maketrans({"I": "1", "L": "1", "O": "0", "-": None, " ": None})

CodeRefused = Literal["code-unknown", "code-used-up"]


LOCKED = "FOR UPDATE OF code"
CODES, CODE_USES, SPEND_CODES = (raw_statement(__package__, verb) for verb in ("codes", "code_uses", "spend_codes"))


def fresh_code() -> str:
    """A code nobody can guess, in groups a person can copy: `7K3M-Q0ZD-4XWA-90TB`."""
    groups = ("".join(secrets.choice(ALPHABET) for _ in range(GROUP_CHARS)) for _ in range(GROUPS))
    return "-".join(groups)


def code_hash(event_id: str, code: str) -> bytes:
    """What is kept of a code; upper or lower case, spaces and dashes make no difference, nor do O for 0 and I for 1."""
    return hashlib.sha256(f"onsale code {event_id} {code.upper().translate(_READ_AS)}".encode()).digest()


class Code(NamedTuple):
    """A code that stands: the lane it opens, and how many places it is still good for."""

    lane: int
    left: int


@dataclass
class CodeBatch:
    """The codes of a batch of joins, by holder, asked and spent over one connection to the ledger."""

    driver: Any
    room: WaitingRoom
    hashes: Mapping[str, bytes]
    _again: set[str] = field(default_factory=set)

    async def validate(self, holders: Collection[str], *, lock: bool) -> dict[str, int | CodeRefused]:
        """The lane each holder's code opens, or why it does not; those without a code are left out.

        With `lock` it stays so until the transaction ends.
        """
        asking = {holder: self.hashes[holder] for holder in holders if holder in self.hashes}
        if not asking:
            return {}
        which = self.room.event_id, self.room.epoch
        rows = await self.driver.fetch(CODES + (LOCKED if lock else ""), *which, list(set(asking.values())))
        codes = {row["code_hash"]: Code(row["lane"], row["uses_max"] - row["uses"]) for row in rows}
        again = await self.driver.fetch(CODE_USES, *which, list(asking.values()), list(asking))
        self._again = {row["holder"] for row in again}
        taken: Counter[bytes] = Counter()
        return {holder: self._judge(holder, name, codes.get(name), taken) for holder, name in asking.items()}

    def _judge(self, holder: str, name: bytes, code: Code | None, taken: Counter[bytes]) -> int | CodeRefused:
        if code is None or code.lane not in self.room.lanes:
            return "code-unknown"
        if holder not in self._again:
            if taken[name] >= code.left:
                return "code-used-up"
            taken[name] += 1
        return code.lane

    async def redeem(self, lane: int, given: Mapping[str, int]) -> None:
        """Counts the uses of those who were given a place just now, after `judge` with `lock`."""
        coded = [holder for holder in given if holder in self.hashes]
        if coded:
            await self.driver.execute(
                SPEND_CODES, self.room.event_id, self.room.epoch, lane, [self.hashes[h] for h in coded], coded,
                [given[h] for h in coded], [h not in self._again for h in coded],
            )  # fmt: skip
