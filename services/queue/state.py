"""What a running queue consists of: the handles that `app.py` opened, as its doors use them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.queue.access.access_code_store import AccessCodeStore
from services.queue.admission.autotune import ControlLoop
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.line.claims import Claims
from services.queue.line.heartbeats import Heartbeats
from services.queue.line.join import Joins
from services.queue.line.redis_line import RedisLine
from services.queue.line.sessions import PassInvalidation, Sessions
from services.queue.lottery.service import LotteryService
from services.queue.reconcile import SlotReconciler
from services.queue.recovery import Recovery
from services.queue.rooms.store import Rooms


@dataclass(frozen=True)
class State:
    """Kept on the app's state."""

    line: RedisLine
    rooms: Rooms
    joins: Joins
    claims: Claims
    life: Heartbeats
    recovery: Recovery
    reconciling: SlotReconciler
    sessions: Sessions
    gatekeeper: Gatekeeper
    lottery: LotteryService
    codes: AccessCodeStore
    floors: PassInvalidation
    steering: ControlLoop


async def running(request: Request) -> State:
    """A dependency that yields what runs here; `async`, because another would be run in a thread."""
    found: State = request.app.state.queue
    return found


Queue = Annotated[State, Depends(running)]
