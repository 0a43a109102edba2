"""The client of the stock in Redis: atomic holds, and the steps by which Redis follows PostgreSQL.

Redis decides who may hold what, in one script; it can be rebuilt from PostgreSQL at any time. Methods that follow
PostgreSQL do nothing while Redis is not ready, because a rebuild reads the same facts.
"""

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from redis.exceptions import ResponseError

from services.inventory.redis_keys import Keys
from services.inventory.reservations.repository import LiveHold, ReservationRow
from shared.concurrency.group_commit import chunks
from shared.redis.client import REDIS_AWAY, Redis
from shared.redis.scripts import Script, reply_status
from shared.runtime.clock_offsets import Clocks

NEW_HOLD_DUE_MS = 5_000
LIVE_UNLIMITED_MAX = 100
ROWS_PER_SCRIPT, POSITION_ARGUMENTS = 500, 4
EVENTS_PER_ROUND_TRIP = 100
HOLDS_PER_SCRIPT = 64  # a script blocks Redis: about a millisecond for so many


def load_script(verb: str) -> Script:
    """`lua/<verb>.lua` after the functions it uses."""
    folder = importlib.resources.files(__package__).joinpath("lua")
    parts = ("prelude", "best_available", verb) if verb == "hold" else ("prelude", verb)
    return Script(f"{__package__}:{verb}", "".join(folder.joinpath(f"{part}.lua").read_text() for part in parts))


_ALL_KEYS = ("meta", "counts", "holds", "deadlines", "usage", "dirty", "map")


@dataclass(frozen=True, slots=True)
class HoldDenied:
    """Why Redis denied a hold, the places or numbers in detail, Redis' time, and holds that are due by then."""

    outcome: str
    detail: str
    now_ms: int
    due: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldGranted:
    """A hold that was made now (`held`) or before (`again`): its id, Redis' epoch, its deadline and its places."""

    outcome: str
    reservation_id: str
    epoch: int
    until_ms: int
    selection: str


class RedisStock:
    """The stock of every event."""

    def __init__(self, redis: Redis, *, clocks: Clocks | None = None, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = clocks or Clocks()
        self.clock_offset_ms = clock_offset_ms  # tests move every clock by it
        verbs = (
            "hold", "extend", "begin_payment", "end_payment", "confirm", "release", "keep_only", "reacquire",
            "apply_return", "set_positions", "lower_available", "list_due", "revoke", "set_min_pass_epoch",
            "rebuild_holds", "rebuild_usage",
        )  # fmt: skip
        self.scripts = {verb: load_script(verb) for verb in verbs}

    def slowest_besides_redis_ms(self) -> int:
        """The time by the slower of PostgreSQL's and this process' clocks, which scripts cannot read."""
        return self.clocks.slowest_besides_redis_ms() + self.clock_offset_ms

    def slowest_ms(self) -> int:
        """The time by the slowest clock; what has a deadline before it may end."""
        return self.clocks.slowest_ms() + self.clock_offset_ms

    async def hold(self, event_id: str, requests: Sequence[dict[str, Any]]) -> list[HoldGranted | HoldDenied]:
        """Makes many holds in one round trip, each whole or not at all. Raises what Redis raised."""
        named: dict[str, Any] = Keys.of(event_id).only(*_ALL_KEYS, "revoked")
        named |= {
            "clock_offset_ms": self.clock_offset_ms,
            "due_ms": NEW_HOLD_DUE_MS,
            "others_ms": self.slowest_besides_redis_ms(),
        }
        chunks = [requests[i : i + HOLDS_PER_SCRIPT] for i in range(0, len(requests), HOLDS_PER_SCRIPT)]
        calls = [{**named, "requests": [orjson.dumps(request) for request in chunk]} for chunk in chunks]
        replies: list[Any] = []
        for answers in await self.scripts["hold"].many(self.redis, calls):
            if isinstance(answers, ResponseError):
                raise answers
            replies += answers
        return [_hold_reply(reply, request["reservation_id"]) for reply, request in zip(replies, requests, strict=True)]

    async def extend(self, event_id: str, untils: Iterable[tuple[str, int]], *, grace_ms: int) -> None:
        flat = [part for pair in untils for part in pair]
        if flat:
            keys = Keys.of(event_id).only("meta", "holds", "deadlines")
            await self.scripts["extend"](self.redis, **keys, grace_ms=grace_ms, ids_and_untils=flat)

    async def confirm_written(self, event_id: str, release_at_ms: Mapping[str, int]) -> None:
        """PostgreSQL has these new holds: their own deadline replaces the short one. Late and repeated calls are safe:
        it never lowers a deadline, and adds none to a hold that is being paid or gone.
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
        await self._many("confirm", event_id, _ALL_KEYS, [{"reservation_id": r} for r in reservation_ids])

    async def release(self, event_id: str, reservation_ids: Sequence[str]) -> None:
        await self._many("release", event_id, _ALL_KEYS, [{"reservation_id": r} for r in reservation_ids])

    async def keep_only(self, event_id: str, reservation_id: str, selection: str) -> None:
        """Shrinks a hold to these places."""
        await self._many("keep_only", event_id, _ALL_KEYS, [{"reservation_id": reservation_id, "selection": selection}])

    async def reacquire(self, event_id: str, reservation_id: str, holder: str, selection: str) -> None:
        call = {"reservation_id": reservation_id, "holder": holder, "selection": selection}
        await self._many("reacquire", event_id, _ALL_KEYS, [call])

    async def apply_return(
        self, event_id: str, record: ReservationRow, *, epoch: int, mark: str, places: str, excess: Mapping[str, int]
    ) -> None:
        """Sold `places` become `mark`; `excess` are tickets by section that were sold beyond the stock and free no
        place.
        """
        call = {
            "epoch": epoch, "reservation_id": record.reservation_id, "holder": record.holder,
            "quantity": record.quantity, "mark": mark, "places": places,
            "excess": [part for pair in excess.items() for part in pair],
        }  # fmt: skip
        await self._many("apply_return", event_id, _ALL_KEYS, [call])

    async def set_positions(self, event_id: str, places: Sequence[str | int]) -> int:
        """Sets positions and counts as in PostgreSQL; how many changed. `lua/set_positions.lua` has their form."""
        keys, total = Keys.of(event_id).only("meta", "counts", "dirty", "map"), 0
        for some in chunks(places, POSITION_ARGUMENTS * ROWS_PER_SCRIPT):
            changed = await self.scripts["set_positions"](self.redis, **keys, places=some)
            total += changed if isinstance(changed, int) else 0
        return total

    async def restore(self, event_id: str, missing: Sequence[LiveHold], usage: Sequence[tuple[str, int]]) -> None:
        """Restores holds that Redis lost, and sets how many tickets holders have."""
        keys, epoch = Keys.of(event_id), await self.redis.hget(Keys.of(event_id).meta, "epoch") or 0
        some = {**keys.only("meta", "holds", "deadlines", "usage"), "epoch": epoch}
        for records in chunks(missing, ROWS_PER_SCRIPT):
            holds = [part for record in records for part in hold_arguments(record)]
            await self.scripts["rebuild_holds"](self.redis, **some, listed=holds)
        some = {**keys.only("meta", "usage"), "epoch": epoch}
        for pairs in chunks(usage, ROWS_PER_SCRIPT):
            flat = [part for pair in pairs for part in pair]
            await self.scripts["rebuild_usage"](self.redis, **some, tickets=flat)

    async def lower_available(self, event_id: str, left: dict[str, int]) -> None:
        """Lowers the available GA tickets of sections to at most these numbers."""
        calls = [{"section_id": section_id, "available_max": n} for section_id, n in left.items()]
        await self._many("lower_available", event_id, ("meta", "counts", "dirty"), calls)

    async def list_due(self, event_id: str, *, count_max: int) -> tuple[int, list[str]]:
        """The time by the slowest clock and the ids of due holds; (0, []) while Redis is not ready."""
        reply = await self.scripts["list_due"](self.redis, **self._due_arguments(event_id, count_max))
        return (0, []) if reply_status(reply) == "not-ready" else (int(reply[0]), [r.decode() for r in reply[1:]])

    async def events_with_due(self, event_ids: Iterable[str]) -> list[str]:
        """Events that may have due holds, many per round trip; also those of a Redis node that does not answer."""
        due: list[str] = []
        for some in chunks(event_ids, EVENTS_PER_ROUND_TRIP):
            try:
                replies = await self.scripts["list_due"].many(
                    self.redis, [self._due_arguments(event_id, 1) for event_id in some]
                )
            except REDIS_AWAY:
                due += some
            else:
                due += [e for e, reply in zip(some, replies, strict=True) if not _is_empty_reply(reply)]
        return due

    def _due_arguments(self, event_id: str, count_max: int) -> dict[str, Any]:
        times = {"clock_offset_ms": self.clock_offset_ms, "others_ms": self.slowest_besides_redis_ms()}
        return {**Keys.of(event_id).only("meta", "deadlines"), **times, "count_max": count_max}

    async def revoke(self, event_id: str, passes: Sequence[tuple[str, str, int]]) -> list[tuple[str, int | None]]:
        """Per (jti, holder, expires_at_ms): `gone`, `live` with the hold's deadline in ms, or `not-ready`."""
        times = {"clock_offset_ms": self.clock_offset_ms, "others_ms": self.slowest_besides_redis_ms()}
        calls = [{"jti": jti, "holder": holder, "expires_at_ms": at_ms, **times} for jti, holder, at_ms in passes]
        replies = await self._many("revoke", event_id, ("meta", "holds", "usage", "revoked"), calls)
        return [(reply_status(reply), int(reply[1]) if len(reply) > 1 else None) for reply in replies]

    async def set_min_pass_epoch(self, event_id: str, epoch: int) -> None:
        """Passes of earlier epochs make no hold from now on."""
        await self.scripts["set_min_pass_epoch"](self.redis, meta=Keys.of(event_id).meta, min_epoch=epoch)

    async def _many(self, verb: str, event_id: str, keys: Sequence[str], calls: Sequence[dict[str, Any]]) -> list[Any]:
        named = Keys.of(event_id).only(*keys)
        replies = await self.scripts[verb].many(self.redis, [{**named, **call} for call in calls]) if calls else []
        for reply in replies:
            reply_status(reply)
        return replies


def _is_empty_reply(due: Any) -> bool:
    """Only the time, or `not-ready`. An error is no empty reply, so the event is queried by itself, which raises it."""
    return isinstance(due, list) and len(due) == 1


def hold_arguments(hold: LiveHold) -> tuple[str | int, ...]:
    """A live reservation as arguments of `rebuild_holds`; one that is being paid has no deadline (0)."""
    stock_hash, _, body_hash = hold.fingerprint.partition(".")
    release_at_ms = 0 if hold.status == "paying" else hold.release_at_ms
    return (
        hold.reservation_id, hold.holder, stock_hash, body_hash, hold.selection_text(), hold.reserved_until_ms,
        release_at_ms,
    )  # fmt: skip


def _hold_reply(reply: Any, reservation_id: str) -> HoldGranted | HoldDenied:
    match reply_status(reply):
        case "held":
            return HoldGranted("held", reservation_id, int(reply[1]), int(reply[2]), reply[3].decode())
        case "again":
            return HoldGranted("again", reply[1].decode(), int(reply[2]), int(reply[3]), reply[4].decode())
        case "reused" | "revoked" | "not-ready" as reason:
            return HoldDenied(reason, "", 0, ())
        case "clocks-apart" as reason:
            return HoldDenied(reason, reply[1].decode(), 0, ())
        case reason:
            return HoldDenied(reason, reply[2].decode(), int(reply[1]), tuple(r.decode() for r in reply[3:]))
