"""One step of the admission loop: one script that calls and expires places and says how the line stands."""

import orjson

from services.queue import redis_keys
from services.queue.line.redis_line import PRELUDE, RedisLine
from services.queue.line.replies import Stock, TickReply, parse_due_session, parse_tick_event
from services.queue.rooms.model import WaitingRoom
from shared.redis.client import Script

TICK = Script.load(__package__, "weighted_share", "scan", "expected_buyers", "in_progress", "tick", prelude=PRELUDE)


async def tick(line: RedisLine, room: WaitingRoom, *, heartbeat_gap: bool, stock: Stock) -> TickReply:
    """Runs the script once. Raises `LineNotReady`, `StaleEpoch`."""
    reply = await line.run_in_time(
        TICK,
        room.event_id,
        room.ranking,
        lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
        heartbeat_gap=int(heartbeat_gap),
        stock_available=stock.available,
        holders_holding=stock.holders_holding,
        holds_begun=stock.holds_begun,
        holds_released=stock.holds_released,
        stock_version=stock.version,
        stock=stock.level,
        others_ms=line.slower_clock_ms(),
        lanes=room.lanes,
    )
    await line.check(reply, room.event_id, room.epoch)
    _, state, changes, due = reply
    entry = room.ranking.entry
    return TickReply(
        orjson.loads(state),
        [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_tick_event, changes)],
        [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_due_session, due)],
    )
