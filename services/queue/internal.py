"""Internal API for the other services: joins, status, claims, leaves, heartbeats, the line's frame, the lottery.

Requests and answers are batches; a repeated request has the same result.
"""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.routing import Route

from services.queue.lottery.entrants import prove_entry
from services.queue.places.sessions import revoked_passes
from services.queue.state import State, StateDep
from shared.contracts.frames import LineFrame, Revoked
from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.contracts.queue import (
    ClaimAnswer,
    ExtendAnswer,
    HeartbeatAnswer,
    HeartbeatReport,
    HoldersAnswer,
    HoldersQuestion,
    JoinBatch,
    LeaveAnswer,
    PlacesQuestion,
    PlaceStatuses,
    ProofQuestion,
    ReleaseAnswer,
    RoomQuestion,
)
from shared.web.fast_routes import JsonRoute

router = APIRouter()


async def _join(app_state: Any, batch: JoinBatch) -> BaseModel:
    state: State = app_state.deps
    return await state.joins.join(batch)


FAST_ROUTES = [Route("/joins", JsonRoute(JoinBatch, _join), methods=["POST"])]


@router.post("/places")
async def find(question: HoldersQuestion, state: StateDep) -> HoldersAnswer:
    return await state.claims.find(question)


@router.post("/status")
async def status(question: PlacesQuestion, state: StateDep) -> PlaceStatuses:
    return PlaceStatuses(places=await state.claims.status(question))


@router.post("/claims")
async def claim(question: PlacesQuestion, state: StateDep) -> ClaimAnswer:
    return ClaimAnswer(claims=await state.claims.claim(question))


@router.post("/extensions")
async def extend(question: PlacesQuestion, state: StateDep) -> ExtendAnswer:
    return ExtendAnswer(extensions=await state.claims.extend(question))


@router.post("/leaves")
async def leave(question: PlacesQuestion, state: StateDep) -> LeaveAnswer:
    return LeaveAnswer(places=await state.claims.leave(question))


@router.post("/releases")
async def release(question: PlacesQuestion, state: StateDep) -> ReleaseAnswer:
    return ReleaseAnswer(places=await state.claims.release(question))


@router.post("/rooms/revoked")
async def list_revoked_passes(question: RoomQuestion, state: StateDep) -> Revoked:
    return await revoked_passes(state.rooms, question.event_id)


@router.post("/heartbeats")
async def heartbeats(report: HeartbeatReport, state: StateDep) -> HeartbeatAnswer:
    return HeartbeatAnswer(report_again_s=await state.heartbeats.report(report))


@router.post("/lottery")
async def lottery(question: RoomQuestion, state: StateDep) -> PublishedLottery:
    return await state.lottery.published(question.event_id)


@router.post("/lottery/proof")
async def lottery_proof(question: ProofQuestion, state: StateDep) -> EntryProof:
    return await prove_entry(state.rooms, question)


@router.post("/rooms/frame")
async def frame(question: RoomQuestion, state: StateDep) -> LineFrame:
    return await state.gatekeeper.frame(question.event_id)
