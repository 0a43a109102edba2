"""Admission by hand: an operator calls some fans beyond the rate, in one turn, and hears how many it called."""

from services.queue import keys
from services.queue.gatekeeper import Gatekeeper
from services.queue.line import Line
from services.queue.metrics import HANDED
from services.queue.room import Room
from shared.lua import Script, word
from shared.problems import Unavailable

ADMIT = Script.load(__package__, "admit")


async def admit(line: Line, gatekeeper: Gatekeeper, room: Room, count: int) -> int:
    """Runs one turn that may make so many calls beyond the rate; how many it made. Raises `Unavailable`."""
    before = await _hand(line, room, count)
    await gatekeeper.turn(room.event_id)
    called = await _hand(line, room, 0) - before
    HANDED.inc(called)
    return called


async def _hand(line: Line, room: Room, count: int) -> int:
    """Lets the next tick call so many; how many were called by hand until now."""
    reply = await line.ask(room.event_id, ADMIT, room=keys.room(room.event_id), epoch=room.epoch, count=count)
    if word(reply) != "ok":
        raise Unavailable("The line is being filled anew. Nobody was called.")
    return int(reply[1])
