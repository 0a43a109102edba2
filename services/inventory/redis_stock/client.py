"""The client of the stock in Redis: atomic holds, and the one way in which Redis follows PostgreSQL.

Redis decides who may hold what, in one script; all else it is told by another, with the version that PostgreSQL has.
It can be rebuilt at any time; while it is not ready it follows nothing, because a rebuild reads the same facts.
"""

import importlib.resources
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import orjson
from redis.exceptions import ResponseError

from services.inventory.metrics import DRIFT
from services.inventory.redis_keys import Keys
from services.inventory.store.reservations import LiveHold, ReservationRow
from shared.concurrency.coalescing import chunks
from shared.redis.client import REDIS_AWAY, Argument, Redis, Script, reply_status
from shared.runtime.clock import Clocks
from shared.runtime.logging import get_logger
from shared.runtime.tracing import sale_log

log = get_logger("onsale.inventory")
NEW_HOLD_DUE_MS = 5_000
LIVE_UNLIMITED_MAX = 100
ROWS_PER_SCRIPT = 500
EVENTS_PER_ROUND_TRIP = 100
HOLDS_PER_SCRIPT = 64  # a script blocks Redis: about a millisecond for so many
LUA = importlib.resources.files(__package__).joinpath("lua")
Change = dict[str, Any]  # of a reservation or of places, as `lua/follow.lua` has it
NOW: dict[str, str] = {"pending_payment": "h", "paying": "p", "confirmed": "s"}  # the others have ended
WORDS = {"h": "held", "p": "paying", "s": "sold", ".": "ended"}
FOR_HOLDS = ("prelude", "best_available", "accessible", "single_seats")  # what `hold` uses; all others use the first
VERBS = sorted({file.name.removesuffix(".lua") for file in LUA.iterdir()} - {*FOR_HOLDS})


@cache
def load_script(verb: str, package: str = __package__) -> Script:
    """`lua/<verb>.lua` of a package after the functions it uses; `keys` has the keys that its header names."""
    own = importlib.resources.files(package).joinpath("lua", f"{verb}.lua")
    parts = [LUA.joinpath(f"{part}.lua") for part in FOR_HOLDS[: None if verb == "hold" else 1]]
    source, name = "".join(part.read_text() for part in (*parts, own)), f"{package}:{verb}"
    keys = [f"{key.name} = KEYS[{i}]" for i, key in enumerate(Script(name, source).keys, 1) if not key.is_list]
    return Script(name, f"local keys = {{{', '.join(keys)}}}\n{source}")


class HoldDenied(NamedTuple):
    """Why Redis denied a hold, the places or numbers in detail, Redis' time, and holds that are due by then."""

    outcome: str
    detail: str = ""
    now_ms: int = 0
    due: tuple[str, ...] = ()


class HoldGranted(NamedTuple):
    """A hold that was made now (`held`) or before (`again`): its id, Redis' epoch, its deadline and its places; of one
    made now the seats that it leaves alone, and a choice that would leave none.
    """

    outcome: str
    reservation_id: str
    epoch: int
    until_ms: int
    selection: str
    left_alone: str = ""
    better: str = ""


class Revocation(NamedTuple):
    """A pass is `gone`, `live` with the deadline of its holder's hold, or Redis is `not-ready`."""

    outcome: str
    until_ms: int | None = None


class DueHolds(NamedTuple):
    """The time by the slowest clock, and the ids of holds that are due by then; 0 while Redis is not ready."""

    now_ms: int = 0
    reservation_ids: tuple[str, ...] = ()


class RedisStock:
    """The stock of every event."""

    def __init__(self, redis: Redis, *, clocks: Clocks | None = None, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = clocks or Clocks()
        self.clock_offset_ms = clock_offset_ms  # tests move every clock by it
        self.scripts = {verb: load_script(verb) for verb in VERBS}
        self.behind: set[str] = set()  # events of which Redis missed a change; reconciliation takes them out

    @contextmanager
    def follows(self, event_ids: Iterable[str]) -> Iterator[None]:
        """Redis follows PostgreSQL inside; if it is away, reconciliation corrects the difference soon."""
        try:
            yield
        except REDIS_AWAY as away:
            missed = sorted(set(event_ids))
            self.behind.update(missed)
            DRIFT.labels("sync").inc()
            log.warning("redis_stock.sync_failed", event_ids=missed, error=type(away).__name__)

    def script_clocks(self) -> dict[str, int]:
        """What scripts compare Redis' clock with: the slower of PostgreSQL's and this process' clocks."""
        others_ms = self.clocks.slowest_besides_redis_ms() + self.clock_offset_ms
        return {"clock_offset_ms": self.clock_offset_ms, "others_ms": others_ms}

    def slowest_ms(self) -> int:
        """The time by the slowest clock; what has a deadline before it may end."""
        return self.clocks.slowest_ms() + self.clock_offset_ms

    async def hold(self, event_id: str, requests: Sequence[dict[str, Any]]) -> list[HoldGranted | HoldDenied]:
        """Makes many holds in one round trip, each whole or not at all. Raises what Redis raised."""
        times = {**self.script_clocks(), "due_ms": NEW_HOLD_DUE_MS}
        calls = [{**times, "requests": map(orjson.dumps, some)} for some in chunks(requests, HOLDS_PER_SCRIPT)]
        replies = [reply for answers in await self.many("hold", event_id, calls) for reply in answers]
        return [_hold_reply(reply, request["reservation_id"]) for reply, request in zip(replies, requests, strict=True)]

    async def follow(
        self, event_id: str, reservations: Sequence[Change] = (), *, places: Iterable[Change] = (),
        tickets: Iterable[tuple[str, int]] = (), epoch: int = 0, version: int = 0,
    ) -> str:  # fmt: skip
        """Makes these as PostgreSQL has them; the first answer of `lua/follow.lua` that is not done, else done.

        `epoch` is Redis' when PostgreSQL was read, `version` the event's when its places were; 0 for whichever.
        """
        if sale_log.on:
            for now, n in Counter(r["now"] for r in reservations).items():
                sale_log.write("sale.seats", event_id=event_id, status=WORDS[now], reservations_n=n)
        calls = follow_calls(reservations, places=places, tickets=tickets, epoch=epoch, version=version)
        answers = map(reply_status, await self.many("follow", event_id, list(calls)))
        return next((answer for answer in answers if answer != "done"), "done")

    async def list_due(self, event_id: str, *, count_max: int) -> DueHolds:
        return _due_holds(await self.call("list_due", event_id, **self.script_clocks(), count_max=count_max))

    async def until_due(self, event_ids: Iterable[str]) -> dict[str, float]:
        """The ms until the earliest deadline of each event, many per round trip; 0 for those of a Redis node that does
        not answer, and for those whose reply is an error, which is raised when the event is queried by itself.
        """
        waits: dict[str, float] = {}
        for some in chunks(event_ids, EVENTS_PER_ROUND_TRIP):
            calls = [self.named("list_due", event_id, **self.script_clocks(), count_max=1) for event_id in some]
            try:
                replies = await self.scripts["list_due"].many(self.redis, calls)
            except REDIS_AWAY:
                waits |= dict.fromkeys(some, 0.0)
            else:
                waits |= {event_id: _until_due_ms(reply) for event_id, reply in zip(some, replies, strict=True)}
        return waits

    async def revoke(self, event_id: str, passes: Iterable[tuple[str, str, int]]) -> list[Revocation]:
        """One per pass, given as (jti, holder, expires_at_ms)."""
        times = self.script_clocks()
        calls = [{"jti": jti, "holder": holder, "expires_at_ms": at_ms, **times} for jti, holder, at_ms in passes]
        replies = await self.many("revoke", event_id, calls)
        return [Revocation(reply_status(reply), *map(int, reply[1:])) for reply in replies]

    async def set_min_pass_epoch(self, event_id: str, epoch: int) -> None:
        """Passes of earlier epochs make no hold from now on."""
        await self.call("set_min_pass_epoch", event_id, min_epoch=epoch)

    def named(self, verb: str, event_id: str, **arguments: Argument) -> dict[str, Argument]:
        """The arguments with the keys of the event that the script's header names."""
        keys, named = Keys.of(event_id), (key.name for key in self.scripts[verb].keys)
        return {**{name: getattr(keys, name) for name in named if name not in arguments}, **arguments}

    async def call(self, verb: str, event_id: str, **arguments: Argument) -> Any:
        """The script's reply; raises what Redis raised."""
        return await self.scripts[verb](self.redis, **self.named(verb, event_id, **arguments))

    async def many(self, verb: str, event_id: str, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The same for many calls in one round trip."""
        keys = self.named(verb, event_id)
        replies = await self.scripts[verb].many(self.redis, [{**keys, **call} for call in calls]) if calls else []
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies


def _due_holds(reply: Any) -> DueHolds:
    if reply_status(reply) == "not-ready":
        return DueHolds()
    return DueHolds(int(reply[0]), tuple(reservation_id.decode() for reservation_id in reply[2:]))


def _until_due_ms(reply: Any) -> float:
    if not isinstance(reply, list):
        return 0.0  # an error
    return math.inf if reply_status(reply) == "not-ready" else float(reply[1]) - int(reply[0])


def follow_calls(
    reservations: Iterable[Change] = (), *, places: Iterable[Change] = (), tickets: Iterable[tuple[str, int]] = (),
    epoch: int = 0, version: int = 0, rebuild: bool = False,
) -> Iterator[dict[str, Argument]]:  # fmt: skip
    """The arguments of as many calls of `lua/follow.lua` as it takes, because a script blocks Redis."""
    nothing: dict[str, Argument] = {
        "rebuild": int(rebuild), "epoch": epoch, "version": version, "reservations": "[]", "places": "", "tickets": (),
    }  # fmt: skip
    for one in places:
        yield {**nothing, "places": orjson.dumps(one)}
    for some in chunks(reservations, HOLDS_PER_SCRIPT):
        yield {**nothing, "reservations": orjson.dumps(some)}
    for pairs in chunks(tickets, ROWS_PER_SCRIPT):
        yield {**nothing, "tickets": [part for pair in pairs for part in pair]}


def as_in_db(row: ReservationRow) -> Change:
    """A reservation as PostgreSQL has it."""
    change = {"id": row.reservation_id, "v": row.version, "now": NOW.get(row.status, ".")}
    if row.is_live:
        change |= {"until": row.reserved_until_ms, "release_at": row.release_at_ms, "has": row.selection.text()}
    return change


def restored(hold: LiveHold) -> Change:
    """A live reservation for a Redis that may not have it."""
    stock_hash, _, body_hash = hold.fingerprint.partition(".")
    return {
        "id": hold.reservation_id, "v": hold.version, "now": NOW[hold.status], "until": hold.reserved_until_ms,
        "release_at": hold.release_at_ms, "has": hold.stock.text(), "holder": hold.holder, "stock": stock_hash,
        "body": body_hash,
    }  # fmt: skip


def written(reservation_id: str, release_at_ms: int) -> Change:
    """A hold that PostgreSQL has now as Redis granted it: its own deadline replaces the short one."""
    return {"id": reservation_id, "v": 1, "now": "h", "release_at": release_at_ms}


def ended(reservation_id: str, version: int) -> Change:
    """A reservation that ended without a sale; of version 0 a hold that PostgreSQL refused."""
    return {"id": reservation_id, "v": version, "now": "."}


def _hold_reply(reply: list[Any], reservation_id: str) -> HoldGranted | HoldDenied:
    outcome, *rest = (part.decode() if isinstance(part, bytes) else part for part in reply)
    match outcome, rest:
        case "held", [epoch, until_ms, selection, *told]:
            return HoldGranted(outcome, reservation_id, int(epoch), int(until_ms), selection, *told)
        case "again", [known_id, epoch, until_ms, selection]:
            return HoldGranted(outcome, known_id, int(epoch), int(until_ms), selection)
        case "clocks-apart", [ahead_ms]:
            return HoldDenied(outcome, ahead_ms)
        case _, [now_ms, detail, *due]:
            return HoldDenied(outcome, detail, int(now_ms), tuple(due))
    return HoldDenied(outcome)
