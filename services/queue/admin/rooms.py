"""The operators' door: event files, the room's configuration and life. Every change is audited."""

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from services.queue import redis_keys
from services.queue.admin.schemas import NULLABLE, LaneView, LotteryDraw, Notice, Rehearsed, RoomPatch, RoomView, Step
from services.queue.line.redis_line import ANSWER_WITHIN_S
from services.queue.line.repository import LaneTotals, LineRepository
from services.queue.problems import RoomStateConflict
from services.queue.rooms.invariants import audit
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Action
from services.queue.state import Queue, State
from shared.contracts.event_file import EventFile
from shared.contracts.frames import LaneHead, LineFrame
from shared.contracts.lottery import PublishedLottery
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import from_datetime, now_ms
from shared.runtime.logging import data
from shared.security.auth import AnAdmin, AnOperator, Operator, Viewer, operators
from shared.web.fields import DryRun, EventIdPath
from shared.web.problems import InvalidRequest, Problem, VersionMismatch

log = logging.getLogger("onsale.queue")
router = APIRouter(prefix="/admin/queue/events/{event_id}", tags=["admin"])
NO_REASON = Step()
NOTHING = LaneTotals(0, 0, 0.0, 0)
IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=64)]


@router.put("", summary="Apply an event file", responses={201: {"model": RoomView, "description": "A new room"}})
async def apply(
    event_id: EventIdPath, file: EventFile, operator: AnAdmin, queue: Queue, response: Response, dry_run: DryRun = False
) -> RoomView | Rehearsed:
    """Creates the room as a draft, or brings its configuration to the file's. Applying it again changes nothing. With
    `dry_run` everything is checked and nothing is changed.
    """
    if file.event_id != event_id:
        raise InvalidRequest("event_id: the file is about another event than the address.")
    applied = await queue.rooms.apply(file, actor=operator.name, dry_run=dry_run)
    if dry_run:
        return Rehearsed(event_id=event_id, changed=applied.changed)
    response.status_code = 201 if applied.created else 200
    return await obey(queue, applied.room, response)


@router.get("/room", summary="Get the waiting room")
async def show(event_id: EventIdPath, _operator: Viewer, queue: Queue, response: Response) -> RoomView:
    return await view(queue, await queue.rooms.read(event_id), response)


@router.patch("/room", summary="Change the room's configuration")
async def change(
    event_id: EventIdPath, patch: RoomPatch, operator: AnOperator, queue: Queue, response: Response,
    if_match: IfMatch = None,
) -> RoomView:  # fmt: skip
    """The next tick obeys. With `If-Match`, only if nobody changed the room since you read it."""
    wanted: dict[str, Any] = {name: getattr(patch, name) for name in patch.model_fields_set - {"reason"}}
    for name, value in wanted.items():
        if value is None and name not in NULLABLE:
            raise InvalidRequest(f"{name}: null is not acceptable.")
    if not wanted:
        raise InvalidRequest("Say what to change.")
    _in_order(await queue.rooms.read(event_id), wanted)
    room = await queue.rooms.change(
        event_id, wanted, actor=operator.name, action="change", reason=patch.reason, version=wanted_version(if_match)
    )
    return await obey(queue, room, response)


@router.post("/room/message", summary="Set the queue message")
async def message(
    event_id: EventIdPath, notice: Notice, operator: AnOperator, queue: Queue, response: Response,
    if_match: IfMatch = None,
) -> RoomView:  # fmt: skip
    room = await queue.rooms.change(
        event_id, {"message": notice.message}, actor=operator.name, action="message", reason=notice.reason,
        version=wanted_version(if_match),
    )  # fmt: skip
    return await obey(queue, room, response)


@router.post("/room/reset", summary="Reset the queue")
async def reset(
    event_id: EventIdPath, operator: Annotated[Operator, operators("admin")], queue: Queue, response: Response,
    step: Step = NO_REASON, if_match: IfMatch = None,
) -> RoomView:  # fmt: skip
    """Raises the epoch: every place, token and pass of the old line is dead. Who holds seats may still pay for them."""
    room = await queue.rooms.reset(event_id, actor=operator.name, reason=step.reason, version=wanted_version(if_match))
    try:
        await queue.floors.raised(room)
    except Problem as silent:  # the first claim of the new line asks again, and waits for the answer
        log.warning("reset.passes_not_killed", extra=data(event_id=event_id, error=silent.slug))
    return await obey(queue, room, response)


@router.post("/room/{action}", summary="Open, pause, resume, drain or close the room")
async def move(
    event_id: EventIdPath, action: Action, operator: AnOperator, queue: Queue, response: Response,
    step: Step = NO_REASON, if_match: IfMatch = None,
) -> RoomView:  # fmt: skip
    """Draining: nobody new may join, whoever is in line is still called."""
    if action == "open":
        _may_still_enter(await queue.rooms.read(event_id))
    room = await queue.rooms.transition(
        event_id, action, actor=operator.name, reason=step.reason, version=wanted_version(if_match)
    )
    return await obey(queue, room, response)


@router.post("/lottery/draw", summary="Draw the lottery with the public value")
async def draw(event_id: EventIdPath, value: LotteryDraw, operator: AnOperator, queue: Queue) -> PublishedLottery:
    """Once entry has closed and the value is known: reveals the seed and gives everybody their rank. Drawn once."""
    drawn = await queue.lottery.draw(event_id, value.public_value, actor=operator.name, reason=value.reason)
    await queue.gatekeeper.apply_config(await queue.rooms.get(event_id))
    return drawn


@router.get("/audit", summary="Check the invariants of the queue")
async def look(event_id: EventIdPath, _operator: Viewer, queue: Queue) -> dict[str, Any]:
    room = await queue.rooms.read(event_id)
    line = queue.line
    found = await audit(queue.rooms.db, line.redis, room, clock_offset_ms=line.clock_offset_ms)
    return {"invariants": found}


def wanted_version(if_match: str | None) -> int | None:
    """The version an `If-Match` names; `*` is any."""
    if if_match is None or if_match == "*":
        return None
    text = if_match.removeprefix("W/").strip('"')
    if not text.isdigit():
        raise VersionMismatch("If-Match is not the ETag of this room.")
    return int(text)


def _in_order(room: WaitingRoom, wanted: dict[str, Any]) -> None:
    names = ("queue_opens_at", "sale_starts_at", "sale_ends_at")
    times = [at for name in names if (at := wanted.get(name, getattr(room, name)))]
    if times != sorted(times):
        raise InvalidRequest("queue_opens_at, sale_starts_at and sale_ends_at must be in that order.")


def _may_still_enter(room: WaitingRoom) -> None:
    """A lottery that opens after its entry was to close would have no entrants."""
    rules = room.options.lottery
    if rules is not None and room.state == "draft" and now_ms() >= from_datetime(rules.entry_closes_at):
        raise RoomStateConflict("Entry to the lottery was to close before now: apply an event file with new times.")


async def obey(queue: State, room: WaitingRoom, response: Response) -> RoomView:
    """Gives the engine the new configuration and runs one turn; when the engine is away, it learns it later."""
    await queue.gatekeeper.apply_config(room)
    return await view(queue, room, response)


async def view(queue: State, room: WaitingRoom, response: Response) -> RoomView:
    response.headers["ETag"] = f'"{room.version}"'
    frame = await queue.gatekeeper.frame(room.event_id)
    steering, name = queue.steering, room.event_id
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            called = await queue.line.redis.zcount(redis_keys.called(room.event_id, room.epoch), "-inf", "(inf")
            active = await queue.line.redis.zcount(redis_keys.active(room.event_id, room.epoch), "-inf", "(inf")
    except REDIS_AWAY:
        called = active = 0
    return RoomView.model_validate({
        **room.configuration(), "event_id": room.event_id, "shown_state": frame.state, "ready": frame.ready,
        "lanes": await _lanes(queue, room, frame), "called": called, "active": active,
        "calls_per_s": frame.calls_per_s, "live_ratio": frame.live_ratio,
        "effective_rate_per_s": frame.rate_per_s, "throttled": frame.throttled,
        "guard_sees": steering.guard.observed.get(name), "autotune_rate_per_s": steering.autotune.wishes.get(name),
    })  # fmt: skip


async def _lanes(queue: State, room: WaitingRoom, frame: LineFrame) -> dict[int, LaneView]:
    """Each lane as it is set, where it stands, and what the ledger knows it was given."""
    async with queue.rooms.db.connect() as connection:
        tallies = await LineRepository(connection, room.event_id, room.epoch).tallies()
    views = {}
    for lane in room.options.lanes:
        tally, at = tallies.get(lane.lane, NOTHING), frame.lanes.get(lane.lane, LaneHead(head_seq=0, tail_seq=0))
        given = {"calls": tally.calls, "contested": tally.contested, "due": round(tally.due, 2)}
        views[lane.lane] = LaneView(**dict(lane), **dict(at), **given)
    return views
