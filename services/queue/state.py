"""The state of a running queue process: the objects that `app.py` builds, for the handlers."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.queue.admission.ceiling import ControlLoop
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import RedisLine
from services.queue.line.rules import LineRules
from services.queue.operations import RoomOperations
from services.queue.places.claims import Claims
from services.queue.places.heartbeats import Heartbeats
from services.queue.places.join import Joins
from services.queue.places.reconcile import SlotReconciler
from services.queue.places.sessions import PassInvalidation, SessionEnder
from services.queue.rooms.store import Rooms


@dataclass(frozen=True)
class State:
    """Stands at `app.state.deps`."""

    line: RedisLine
    rules: LineRules
    rooms: Rooms
    joins: Joins
    claims: Claims
    heartbeats: Heartbeats
    recovery: Recovery
    slot_reconciler: SlotReconciler
    sessions: SessionEnder
    gatekeeper: Gatekeeper
    pass_invalidation: PassInvalidation
    control_loop: ControlLoop
    operations: RoomOperations


async def get_state(request: Request) -> State:
    """A dependency; `async`, because FastAPI runs plain functions in a thread."""
    state: State = request.app.state.deps
    return state


StateDep = Annotated[State, Depends(get_state)]
