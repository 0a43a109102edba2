"""What neighbours ask: joins, status, claims, leaves, signs of life, the frame. Batches in, batches out."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.routing import Route

from services.queue.line.sessions import revoked
from services.queue.lottery.entrants import prove
from services.queue.state import Queue, State
from shared.contracts.frames import LineFrame, Revoked
from shared.contracts.lottery import EntryProof, ProofQuestion, PublishedLottery
from shared.contracts.queue import (
    ClaimAnswer,
    HoldersAnswer,
    HoldersQuestion,
    JoinBatch,
    LeaveAnswer,
    LifeAnswer,
    LifeReport,
    PlacesQuestion,
    ReleaseAnswer,
    RoomQuestion,
    StatusAnswer,
)
from shared.web.fast_routes import Asked

router = APIRouter()


async def _join(state: Any, batch: JoinBatch) -> BaseModel:
    queue: State = state.queue
    return await queue.joins.join(batch)


HOT_ROUTES = [Route("/joins", Asked(JoinBatch, _join), methods=["POST"])]


@router.post("/places")
async def find(question: HoldersQuestion, queue: Queue) -> HoldersAnswer:
    return await queue.claims.find(question)


@router.post("/status")
async def status(question: PlacesQuestion, queue: Queue) -> StatusAnswer:
    return StatusAnswer(places=await queue.claims.status(question))


@router.post("/claims")
async def claim(question: PlacesQuestion, queue: Queue) -> ClaimAnswer:
    return ClaimAnswer(claims=await queue.claims.claim(question))


@router.post("/leaves")
async def leave(question: PlacesQuestion, queue: Queue) -> LeaveAnswer:
    return LeaveAnswer(places=await queue.claims.leave(question))


@router.post("/releases")
async def release(question: PlacesQuestion, queue: Queue) -> ReleaseAnswer:
    return ReleaseAnswer(places=await queue.claims.release(question))


@router.post("/rooms/revoked")
async def dead_passes(question: RoomQuestion, queue: Queue) -> Revoked:
    return await revoked(queue.rooms, question.event_id)


@router.post("/life")
async def life(report: LifeReport, queue: Queue) -> LifeAnswer:
    return LifeAnswer(report_again_s=await queue.life.report(report))


@router.post("/lottery")
async def lottery(question: RoomQuestion, queue: Queue) -> PublishedLottery:
    return await queue.lottery.published(question.event_id)


@router.post("/lottery/proof")
async def lottery_proof(question: ProofQuestion, queue: Queue) -> EntryProof:
    return await prove(queue.rooms.db, queue.rooms, question)


@router.post("/rooms/frame")
async def frame(question: RoomQuestion, queue: Queue) -> LineFrame:
    return await queue.gatekeeper.frame(question.event_id)
