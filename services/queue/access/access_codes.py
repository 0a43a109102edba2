"""Access codes, which open a lane: created, validated and redeemed.

A code is redeemed in the transaction that inserts the place, so there is never a place without its use or a use without
its place. A code is 80 random bits and only its hash is stored, so the database does not reveal it. It is good for a
number of places in an epoch; the same holder may use it again until they have bought.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from services.queue.rooms.model import WaitingRoom
from shared.contracts.fields import code_key
from shared.postgres.engine import raw_statement

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # without I, L, O and U, which people misread
GROUPS, GROUP_CHARS = 4, 4
_READ_AS = str.maketrans({"I": "1", "L": "1", "O": "0"})

CodeRefused = Literal["code-unknown", "code-used-up"]


FOR_UPDATE = "FOR UPDATE OF access_code"
CODES, CODE_USES, REDEEM_CODES = (
    raw_statement(__package__, verb) for verb in ("access_codes", "access_code_uses", "redeem_codes")
)


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


class Code(NamedTuple):
    """A valid code: the lane it opens, and for how many places it is still good."""

    lane: int
    uses_left: int


class ValidatedCodes(NamedTuple):
    """The lanes that the holders' codes open, and why others open none. Holders without a code are in neither."""

    lanes: dict[str, int]
    refused: dict[str, CodeRefused]


@dataclass
class CodeBatch:
    """The codes of a batch of joins, validated and redeemed over one database connection. `hashes`: by holder."""

    driver: Any
    room: WaitingRoom
    hashes: Mapping[str, bytes]
    _used_before: set[str] = field(default_factory=set)

    async def validate(self, holders: Collection[str], *, lock: bool) -> ValidatedCodes:
        """Which lane each holder's code opens. With `lock` the result holds until the transaction ends."""
        presented = {holder: self.hashes[holder] for holder in holders if holder in self.hashes}
        result, taken = ValidatedCodes({}, {}), Counter[bytes]()
        if not presented:
            return result
        which = self.room.event_id, self.room.epoch
        rows = await self.driver.fetch(CODES + (FOR_UPDATE if lock else ""), *which, list(set(presented.values())))
        codes = {row["code_hash"]: Code(row["lane"], row["uses_max"] - row["uses"]) for row in rows}
        again = await self.driver.fetch(CODE_USES, *which, list(presented.values()), list(presented))
        self._used_before = {row["holder"] for row in again}
        for holder, name in presented.items():
            code, is_new_use = codes.get(name), holder not in self._used_before
            if code is None or code.lane not in self.room.lanes:
                result.refused[holder] = "code-unknown"
            elif is_new_use and taken[name] >= code.uses_left:
                result.refused[holder] = "code-used-up"
            else:
                taken[name] += is_new_use
                result.lanes[holder] = code.lane
        return result

    async def redeem(self, lane: int, given: Mapping[str, int]) -> None:
        """Counts the uses of holders who were given a place, after `validate` with `lock`."""
        coded = [holder for holder in given if holder in self.hashes]
        if coded:
            await self.driver.execute(
                REDEEM_CODES, self.room.event_id, self.room.epoch, lane, [self.hashes[h] for h in coded], coded,
                [given[h] for h in coded], [h not in self._used_before for h in coded],
            )  # fmt: skip
