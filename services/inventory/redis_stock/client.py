"""The gate: Redis decides who may take what, in one step; it can be filled again from the ledger at any time.

Verbs that follow the ledger never raise because the gate is closed: a filled gate will know by itself.
"""

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from redis.exceptions import ResponseError

from services.inventory.redis_keys import Keys
from services.inventory.reservations.repository import Live, ReservationRow
from shared.redis.client import REDIS_AWAY, Redis
from shared.redis.scripts import Script, word
from shared.runtime.clock_offsets import Clocks
from shared.runtime.group_commit import chunks

NEW_HOLD_DUE_MS = 5_000
LIVE_UNLIMITED_MAX = 100
FILLED_AT_ONCE, CORRECT_WIDTH = 500, 4
EVENTS_AT_ONCE = 100  # as for holds: the engine answers nobody else meanwhile
HOLDS_AT_ONCE = 64  # the engine answers nobody else meanwhile: about a millisecond


def load(verb: str) -> Script:
    """`lua/<verb>.lua` with what it stands on in front of it."""
    folder = importlib.resources.files(__package__).joinpath("lua")
    parts = ("prelude", "best", verb) if verb == "hold" else ("prelude", verb)
    return Script(f"{__package__}:{verb}", "".join(folder.joinpath(f"{part}.lua").read_text() for part in parts))


_ALL = ("meta", "counts", "holds", "deadlines", "usage", "dirty", "map")


@dataclass(frozen=True, slots=True)
class HoldDenied:
    """Why the gate said no, what exactly, and which holds are due at the engine's time."""

    word: str
    detail: str
    now_ms: int
    due: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldGranted:
    """The gate said yes (`held`), or already had (`again`): under this id and epoch, until then, these places."""

    word: str
    reservation_id: str
    epoch: int
    until_ms: int
    basket: str


class RedisStock:
    """The gate of every event."""

    def __init__(self, redis: Redis, *, clocks: Clocks | None = None, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = clocks or Clocks()
        self.clock_offset_ms = clock_offset_ms  # of every clock
        verbs = ("hold", "extend", "begin_payment", "end_payment", "confirm", "release", "keep", "retake",
                 "take_back", "correct", "cap", "due", "revoke", "raise_floor", "fill_holds", "fill_usage")  # fmt: skip
        self.scripts = {verb: load(verb) for verb in verbs}

    def others_ms(self) -> int:
        """The time by the clocks that scripts do not see, the slower one."""
        return self.clocks.others_ms() + self.clock_offset_ms

    def slowest_ms(self) -> int:
        """The time by the slowest clock: what was promised until then may end."""
        return self.clocks.slowest_ms() + self.clock_offset_ms

    async def hold(self, event_id: str, asks: Sequence[dict[str, Any]]) -> list[HoldGranted | HoldDenied]:
        """Takes many baskets in one round trip, each whole or not at all. Raises what the engine raised."""
        named: dict[str, Any] = Keys.of(event_id).only(*_ALL, "revoked")
        named |= {"clock_offset_ms": self.clock_offset_ms, "due_ms": NEW_HOLD_DUE_MS, "others_ms": self.others_ms()}
        chunks = [asks[i : i + HOLDS_AT_ONCE] for i in range(0, len(asks), HOLDS_AT_ONCE)]
        calls = [{**named, "asks": [orjson.dumps(ask) for ask in chunk]} for chunk in chunks]
        replies: list[Any] = []
        for answers in await self.scripts["hold"].many(self.redis, calls):
            if isinstance(answers, ResponseError):
                raise answers
            replies += answers
        return [_hold_reply(reply, ask["reservation_id"]) for reply, ask in zip(replies, asks, strict=True)]

    async def extend(self, event_id: str, untils: Iterable[tuple[str, int]], *, grace_ms: int) -> None:
        flat = [part for pair in untils for part in pair]
        if flat:
            keys = Keys.of(event_id).only("meta", "holds", "deadlines")
            await self.scripts["extend"](self.redis, **keys, grace_ms=grace_ms, ids_and_untils=flat)

    async def confirm_written(self, event_id: str, release_at_ms: Mapping[str, int]) -> None:
        """The ledger has these new holds: from now on their own deadline counts. It may come late, and twice: it never
        lowers a deadline, and gives none to a hold that is being paid or gone.
        """
        if release_at_ms:
            await self.redis.zadd(Keys.of(event_id).deadlines, dict(release_at_ms), xx=True, gt=True)

    async def begin_payment(self, event_id: str, untils: Iterable[tuple[str, int]]) -> None:
        flat = [part for pair in untils for part in pair]
        if flat:
            keys = Keys.of(event_id).only("meta", "holds", "deadlines")
            await self.scripts["begin_payment"](self.redis, **keys, ids_and_untils=flat)

    async def end_payment(self, event_id: str, untils: Sequence[tuple[str, int]], *, grace_ms: int) -> None:
        await self._many(
            "end_payment", event_id, ("meta", "holds", "deadlines"),
            [{"reservation_id": r, "until_ms": until_ms, "grace_ms": grace_ms} for r, until_ms in untils],
        )  # fmt: skip

    async def confirm(self, event_id: str, reservation_ids: Sequence[str]) -> None:
        await self._many("confirm", event_id, _ALL, [{"reservation_id": r} for r in reservation_ids])

    async def release(self, event_id: str, reservation_ids: Sequence[str]) -> None:
        await self._many("release", event_id, _ALL, [{"reservation_id": r} for r in reservation_ids])

    async def keep(self, event_id: str, reservation_id: str, basket: str) -> None:
        """Of this hold only these places are left."""
        await self._many("keep", event_id, _ALL, [{"reservation_id": reservation_id, "basket": basket}])

    async def retake(self, event_id: str, reservation_id: str, holder: str, basket: str) -> None:
        call = {"reservation_id": reservation_id, "holder": holder, "basket": basket}
        await self._many("retake", event_id, _ALL, [call])

    async def apply_return(
        self, event_id: str, record: ReservationRow, *, epoch: int, mark: str, places: str, excess: Mapping[str, int]
    ) -> None:
        """What was sold is `mark` now: `places` in text; the `excess` tickets of sections had none."""
        call = {
            "epoch": epoch, "reservation_id": record.reservation_id, "holder": record.holder,
            "quantity": record.quantity, "mark": mark, "places": places,
            "excess": [part for pair in excess.items() for part in pair],
        }  # fmt: skip
        await self._many("take_back", event_id, _ALL, [call])

    async def set_positions(self, event_id: str, places: Sequence[str | int]) -> int:
        """Sets places to the ledger's word; how many changed. See `lua/correct.lua` for their form."""
        keys, corrected = Keys.of(event_id).only("meta", "counts", "dirty", "map"), 0
        for some in chunks(places, CORRECT_WIDTH * FILLED_AT_ONCE):
            changed = await self.scripts["correct"](self.redis, **keys, places=some)
            corrected += changed if isinstance(changed, int) else 0
        return corrected

    async def restore(self, event_id: str, missing: Sequence[Live], usage: Sequence[tuple[str, int]]) -> None:
        """Holds the ledger has and the gate lost, and how many tickets holders really have."""
        keys, epoch = Keys.of(event_id), await self.redis.hget(Keys.of(event_id).meta, "epoch") or 0
        some = {**keys.only("meta", "holds", "deadlines", "usage"), "epoch": epoch}
        for records in chunks(missing, FILLED_AT_ONCE):
            holds = [part for record in records for part in as_hold(record)]
            await self.scripts["fill_holds"](self.redis, **some, listed=holds)
        some = {**keys.only("meta", "usage"), "epoch": epoch}
        for pairs in chunks(usage, FILLED_AT_ONCE):
            flat = [part for pair in pairs for part in pair]
            await self.scripts["fill_usage"](self.redis, **some, tickets=flat)

    async def lower_available(self, event_id: str, left: dict[str, int]) -> None:
        calls = [{"section_id": section_id, "available_max": n} for section_id, n in left.items()]
        await self._many("cap", event_id, ("meta", "counts", "dirty"), calls)

    async def due(self, event_id: str, *, count_max: int) -> tuple[int, list[str]]:
        """The time, by the engine or whoever is behind it, and what is due; nothing while the gate is closed."""
        reply = await self.scripts["due"](self.redis, **self._due(event_id, count_max))
        return (0, []) if word(reply) == "not-ready" else (int(reply[0]), [r.decode() for r in reply[1:]])

    async def with_due(self, event_ids: Iterable[str]) -> list[str]:
        """Those events of which something may be due: many are asked in one round trip. Events of a process that does
        not answer are among them.
        """
        found: list[str] = []
        for some in chunks(event_ids, EVENTS_AT_ONCE):
            try:
                replies = await self.scripts["due"].many(self.redis, [self._due(event_id, 1) for event_id in some])
            except REDIS_AWAY:
                found += some
            else:
                found += [e for e, reply in zip(some, replies, strict=True) if not _is_nothing(reply)]
        return found

    def _due(self, event_id: str, count_max: int) -> dict[str, Any]:
        times = {"clock_offset_ms": self.clock_offset_ms, "others_ms": self.others_ms()}
        return {**Keys.of(event_id).only("meta", "deadlines"), **times, "count_max": count_max}

    async def revoke(self, event_id: str, passes: Sequence[tuple[str, str, int]]) -> list[tuple[str, int | None]]:
        """(jti, holder, expires_at_ms) each; `gone`, `live` with until_ms, or `not-ready`."""
        times = {"clock_offset_ms": self.clock_offset_ms, "others_ms": self.others_ms()}
        calls = [{"jti": jti, "holder": holder, "expires_at_ms": at_ms, **times} for jti, holder, at_ms in passes]
        replies = await self._many("revoke", event_id, ("meta", "holds", "usage", "revoked"), calls)
        return [(word(reply), int(reply[1]) if len(reply) > 1 else None) for reply in replies]

    async def set_min_pass_epoch(self, event_id: str, floor: int) -> None:
        """Passes of epochs below the floor take nothing any more."""
        await self.scripts["raise_floor"](self.redis, meta=Keys.of(event_id).meta, floor=floor)

    async def _many(self, verb: str, event_id: str, keys: Sequence[str], calls: Sequence[dict[str, Any]]) -> list[Any]:
        named = Keys.of(event_id).only(*keys)
        replies = await self.scripts[verb].many(self.redis, [{**named, **call} for call in calls]) if calls else []
        for reply in replies:
            word(reply)
        return replies


def _is_nothing(due: Any) -> bool:
    """Only the time, or `not-ready`; an error is for whoever asks for that event alone."""
    return isinstance(due, list) and len(due) == 1


def as_hold(record: Live) -> tuple[str | int, ...]:
    """A live reservation as `fill_holds` takes it; one being paid has no deadline."""
    stock_print, _, body_print = record.fingerprint.partition(".")
    release_at_ms = 0 if record.status == "paying" else record.release_at_ms
    return (record.reservation_id, record.holder, stock_print, body_print, record.basket(), record.reserved_until_ms,
            release_at_ms)  # fmt: skip


def _hold_reply(reply: Any, reservation_id: str) -> HoldGranted | HoldDenied:
    match word(reply):
        case "held":
            return HoldGranted("held", reservation_id, int(reply[1]), int(reply[2]), reply[3].decode())
        case "again":
            return HoldGranted("again", reply[1].decode(), int(reply[2]), int(reply[3]), reply[4].decode())
        case "reused" | "revoked" | "not-ready" as why:
            return HoldDenied(why, "", 0, ())
        case "clocks-apart" as why:
            return HoldDenied(why, reply[1].decode(), 0, ())
        case why:
            return HoldDenied(why, reply[2].decode(), int(reply[1]), tuple(r.decode() for r in reply[3:]))
