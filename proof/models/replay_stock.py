"""The stock's model on the real inventory: its scripts, its statements and the functions that join them."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from asyncpg import UniqueViolationError
from sqlalchemy import text

from proof.models.replays import SteppedDatabase, SteppedProcess, View
from proof.models.stock import FANS, PROCESSES, StockState
from services.inventory import app as inventory_app
from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.reconcile.redis_diff import read_redis_stock
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import HoldGranted, RedisStock, as_in_db, ended, written
from services.inventory.redis_stock.push import push_stock
from services.inventory.redis_stock.rebuild import raise_epoch, rebuild
from services.inventory.reservations import payment
from services.inventory.reservations.expiry import expire_overdue, resolve_due
from services.inventory.reservations.reserve import ReservationRequest, _hold_arguments, _hold_insert
from services.inventory.store.change import DirtySet
from services.inventory.store.reservations import (
    BEGIN_FENCED,
    WriteConflict,
    insert_holds,
    read_reservations,
)
from services.inventory.tables import metadata
from shared.contracts.inventory import PaymentStep
from shared.postgres.engine import fenced
from shared.redis.client import Redis, Script, identity
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start

HOUR_MS, BRIEF_MS = 3_600_000, 6_000
VERBS = {"begins": "BEGIN", "confirms": "CONFIRM", "releases": "RELEASE", "takes again": "REACQUIRE"}
STATUSES = {"pending_payment": "pending"}
MISFORTUNES = ("dies", "Redis", "raises the epoch")


class SteppedRedis(RedisStock):
    """An actor stops before its changes in Redis, once for all that follow each other."""

    def __init__(self, redis_stock: RedisStock, actor: SteppedProcess, step: str) -> None:
        super().__init__(redis_stock.redis, clocks=redis_stock.clocks, clock_offset_ms=redis_stock.clock_offset_ms)
        self._actor, self._steps = actor, {step}
        self.scripts["follow"] = SteppedScript(self, self.scripts["follow"])  # type: ignore[assignment]

    async def before(self, step: str) -> None:
        if step in self._steps:
            self._steps.discard(step)
            await self._actor.stop(step)

    async def call(self, verb: str, event_id: str, **arguments: Any) -> Any:
        await self.before("follow")
        if verb != "rebuild_begin":
            return await super().call(verb, event_id, **arguments)
        await self.before("close")
        answer = await super().call(verb, event_id, **arguments)
        await self._actor.stop("read")
        self._steps = {"rebuild"}
        return answer

    async def many(self, verb: str, event_id: str, calls: Any) -> list[Any]:
        if calls:
            await self.before("follow")
        return await super().many(verb, event_id, calls)


class SteppedScript:
    """A script of a rebuild, before whose first call the actor stops."""

    def __init__(self, redis_stock: SteppedRedis, script: Script) -> None:
        self._redis_stock, self._script, self.keys = redis_stock, script, script.keys

    async def many(self, redis: Redis, calls: Any) -> list[Any]:
        await self._redis_stock.before("rebuild")
        return await self._script.many(redis, calls)


class RealStock:
    """The inventory in the hands of the model."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory, self.state = inventory, inventory.state
        self.actors = {p: SteppedProcess() for p in PROCESSES}
        self.snapshot: dict[bytes, bytes] | None = None
        self.requests: dict[str, ReservationRequest] = {}

    @classmethod
    async def open(cls, stack: AsyncExitStack, postgres_url: str, redis_url: str) -> "RealStock":
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(inventory_app, "_start", lambda *_: None)
        running = start(settings_of(redis_url, postgres_url))
        stack.push_async_callback(running.aclose)
        real = cls(await anext(running))
        stack.push_async_callback(real.stop)
        return real

    async def begin(self) -> None:
        """One seat, and nobody has it."""
        await self.stop()
        self.state.redis_stock.clock_offset_ms, self.snapshot, self.held = 0, None, set[str]()
        await self.state.redis_stock.redis.flushall()
        async with self.state.db.begin() as connection:
            await connection.execute(text(f"TRUNCATE {', '.join(map(str, metadata.sorted_tables))}"))
        file = event_file(hold_ttl_s=120, pay_ttl_s=60, grace_s=5)
        assert (
            await self.inventory.put(file | {"sections": [file["sections"][0] | {"rows": 1, "seats_per_row": 1}]})
        ).is_success
        await self.state.redis_monitor.check()
        self.first_epoch = await self._epoch()
        self.requests = {fan: self._request(fan) for fan in FANS}

    async def stop(self) -> None:
        for actor in self.actors.values():
            await actor.die()

    def _request(self, fan: str) -> ReservationRequest:
        at = now_ms() // 1000
        admission = Pass(EVENT, fan, f"jti-{fan}", 1, 0, 7, 6, at, at + 900)
        body = ReserveBody.model_validate({"seats": ["A-1-1"]})
        return build_request(self.state.catalogue.layout(EVENT), admission, body, f"key-of-{fan}")

    async def do(self, label: str) -> None:
        if label in ("five seconds pass", "the holds end"):
            self.inventory.travel(BRIEF_MS if label.startswith("five") else HOUR_MS)
        elif label.startswith("Redis"):
            await self._change_redis(label)
        else:
            process, _, action = label.replace(":", "").partition(" ")
            actor = self.actors[int(process[1])]
            if action == "dies":
                await actor.die()
            elif actor.at:
                await actor.advance()
            else:
                await self._start(actor, action)

    async def _change_redis(self, label: str) -> None:
        redis = self.state.redis_stock.redis
        if label == "Redis saves":
            self.snapshot = {key: value async for key in redis.scan_iter() if (value := await redis.dump(key))}
            return
        await redis.flushall()
        for key, value in (self.snapshot or {}).items() if label == "Redis goes back" else ():
            await redis.restore(key, 0, value)

    async def _start(self, actor: SteppedProcess, action: str) -> None:
        match action.split():
            case ["holds", fan]:
                await actor.start(lambda it: self._hold(it, fan))
            case ["lists", *_]:
                await actor.start(self._expire)
            case ["scans"]:
                await actor.start(self._scan)
            case ["raises", *_]:
                await actor.start(self._rebuild)
            case ["compares"]:
                await self._reconcile()
            case [order, *verb, fan]:
                await actor.start(lambda it: self._pay(it, " ".join(verb), fan, order))

    # -- what a process does -------------------------------------------------------------------------------------------

    async def _hold(self, actor: SteppedProcess, fan: str) -> None:
        """As `ReservationBatcher` does for a batch of one."""
        state, request, reservation_id = self.state, self.requests[fan], self.requests[fan].reservation_id
        redis_stock = SteppedRedis(state.redis_stock, actor, "")
        [reply] = await redis_stock.hold(EVENT, [_hold_arguments(request)])
        if not isinstance(reply, HoldGranted):
            return
        if reply.outcome == "again":
            await actor.stop("look up")
            if row := await self._row(fan):
                if row.is_live:
                    self.held.add(fan)
                else:
                    await SteppedRedis(state.redis_stock, actor, "follow").follow(EVENT, [as_in_db(row)])
                return
        hold = _hold_insert(request, reply)
        await actor.stop("open hold")
        try:
            async with fenced(state.db, BEGIN_FENCED.format(event_id=EVENT)) as driver:
                await actor.stop("write")
                await insert_holds(driver, EVENT, reply.epoch, [hold])
        except (WriteConflict, UniqueViolationError) as conflict:
            if not isinstance(conflict, WriteConflict) or conflict.outcome != "stale":
                await self._rejected(actor, redis_stock, fan)
            return
        self.held.add(fan)
        await actor.stop("keep")
        release_at_ms = hold.until_ms + 1000 * request.layout.grace_s
        await redis_stock.follow(EVENT, [written(reservation_id, release_at_ms)])

    async def _rejected(self, actor: SteppedProcess, redis_stock: RedisStock, fan: str) -> None:
        row = await self._row(fan)
        if row is not None and row.is_live:
            self.held.add(fan)
            return
        await actor.stop("release")
        await redis_stock.follow(EVENT, [ended(self.requests[fan].reservation_id, version=0)])
        if row is None:
            seats = DirtySet(set(self.requests[fan].selection.stock.seats))
            await push_stock(self.state.db, redis_stock, EVENT, seats, refused=True)

    async def _row(self, fan: str) -> Any:
        reservation_id = self.requests[fan].reservation_id
        async with self.state.db.connect() as connection:
            return (await read_reservations(connection, [(EVENT, reservation_id)])).get(reservation_id)

    async def _expire(self, actor: SteppedProcess) -> None:
        now, due = await self.state.redis_stock.list_due(EVENT, count_max=10)
        await actor.stop("expire")
        db: Any = SteppedDatabase(self.state.db, actor, "bury")
        await resolve_due(db, SteppedRedis(self.state.redis_stock, actor, "follow"), EVENT, due, now_ms=now)

    async def _scan(self, actor: SteppedProcess) -> None:
        redis_stock = SteppedRedis(self.state.redis_stock, actor, "follow")
        await expire_overdue(self.state.db, redis_stock, EVENT, now_ms=redis_stock.slowest_ms())

    async def _pay(self, actor: SteppedProcess, verb: str, fan: str, order: str) -> None:
        redis_stock = SteppedRedis(self.state.redis_stock, actor, "follow")
        payments = payment.Payments(self.state.db, redis_stock, self.state.catalogue, self.state.given_back)
        step = PaymentStep(event_id=EVENT, reservation_id=self.requests[fan].reservation_id, order_reference=order)
        await payments.take(getattr(payment, VERBS[verb]), [step])

    async def _rebuild(self, actor: SteppedProcess) -> None:
        redis_stock = SteppedRedis(self.state.redis_stock, actor, "close")
        instance = (await identity(redis_stock.redis, Keys.of(EVENT).meta)).text()
        epoch = await raise_epoch(self.state.db, redis_stock, EVENT, expected=await self._epoch())
        assert epoch is not None
        await rebuild(self.state.db, redis_stock, self.state.catalogue.layout(EVENT), epoch, instance)

    async def _reconcile(self) -> None:
        reconciler, at_s = self.state.reconciler, self.state.reconciler._clock()
        for later_s in (0, 6, 12):
            reconciler._clock = partial(float, at_s + later_s)
            await reconciler.reconcile(self.state.catalogue.layout(EVENT))

    async def _epoch(self) -> int:
        async with self.state.db.connect() as connection:
            return int(await connection.scalar(text("SELECT redis_epoch FROM inventory.event")) or 0)

    # -- comparison ----------------------------------------------------------------------------------------------------

    def shown(self, state: StockState) -> View:
        redis = state.redis
        return {
            "rows": [row and (row.status.replace("never", "expired"), row.order) for row in state.rows],
            "epoch": state.epoch, "held": sorted(state.held), "actors": [worker.at for worker in state.workers],
            "redis": redis and {
                "epoch": redis.epoch, "ready": redis.ready, "mark": redis.mark if redis.ready else "",
                "holds": sorted(redis.holds), "deadlines": sorted(redis.brief | redis.timed),
            },
        }  # fmt: skip

    async def read(self) -> View:
        rows = [await self._row(fan) for fan in FANS]
        return {
            "rows": [row and (STATUSES.get(row.status, row.status), row.order_reference or "") for row in rows],
            "epoch": await self._epoch() - self.first_epoch, "held": sorted(self.held),
            "actors": [actor.at for actor in self.actors.values()], "redis": await self._read_redis(),
        }  # fmt: skip

    async def _read_redis(self) -> View | None:
        redis, keys = self.state.redis_stock.redis, Keys.of(EVENT)
        meta = {name.decode(): value.decode() for name, value in (await redis.hgetall(keys.meta)).items()}
        if "epoch" not in meta:
            return None
        found = await read_redis_stock(redis, EVENT, self.state.catalogue.layout(EVENT))
        fans = {request.reservation_id: fan for fan, request in self.requests.items()}
        deadlines = [member.decode() for member in await redis.zrange(keys.deadlines, 0, -1)]
        return {
            "epoch": int(meta["epoch"]) - self.first_epoch, "ready": found.ready,
            "mark": found.maps.get("A", "")[:1] if found.ready else "",
            "holds": sorted(fans[hold] for hold in found.holds),
            "deadlines": sorted(fans[member] for member in deadlines if member in fans),
        }  # fmt: skip
