"""Internal API for the other services: joins, status, claims, leaves, heartbeats, the line's frame.

Requests and answers are batches; a repeated request has the same result.
"""

from services.queue.places.sessions import revoked_passes
from services.queue.state import State
from shared.contracts.frames import LineFrame, Revoked
from shared.contracts.queue import (
    ClaimAnswer,
    ExtendAnswer,
    HeartbeatAnswer,
    HeartbeatReport,
    HoldersAnswer,
    HoldersQuestion,
    JoinAnswer,
    JoinBatch,
    LeaveAnswer,
    PlacesQuestion,
    PlaceStatuses,
    ReleaseAnswer,
    RoomQuestion,
)
from shared.web.internal_api import InternalApi

API = InternalApi()


@API.operation("/joins", JoinBatch)
async def join(state: State, batch: JoinBatch) -> JoinAnswer:
    return await state.joins.join(batch)


@API.operation("/places", HoldersQuestion)
async def find(state: State, question: HoldersQuestion) -> HoldersAnswer:
    return await state.claims.find(question)


@API.operation("/status", PlacesQuestion)
async def status(state: State, question: PlacesQuestion) -> PlaceStatuses:
    return PlaceStatuses(places=await state.claims.status(question))


@API.operation("/claims", PlacesQuestion)
async def claim(state: State, question: PlacesQuestion) -> ClaimAnswer:
    return ClaimAnswer(claims=await state.claims.claim(question))


@API.operation("/extensions", PlacesQuestion)
async def extend(state: State, question: PlacesQuestion) -> ExtendAnswer:
    return ExtendAnswer(extensions=await state.claims.extend(question))


@API.operation("/leaves", PlacesQuestion)
async def leave(state: State, question: PlacesQuestion) -> LeaveAnswer:
    return LeaveAnswer(places=await state.claims.leave(question))


@API.operation("/releases", PlacesQuestion)
async def release(state: State, question: PlacesQuestion) -> ReleaseAnswer:
    return ReleaseAnswer(places=await state.claims.release(question))


@API.operation("/rooms/revoked", RoomQuestion)
async def list_revoked_passes(state: State, question: RoomQuestion) -> Revoked:
    return await revoked_passes(state.rooms, question.event_id)


@API.operation("/heartbeats", HeartbeatReport)
async def heartbeats(state: State, report: HeartbeatReport) -> HeartbeatAnswer:
    return HeartbeatAnswer(report_again_s=await state.heartbeats.report(report))


@API.operation("/rooms/frame", RoomQuestion)
async def frame(state: State, question: RoomQuestion) -> LineFrame:
    return await state.gatekeeper.frame(question.event_id)
