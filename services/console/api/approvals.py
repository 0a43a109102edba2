"""Requests for a second person's approval: asked for, listed, decided by another person, withdrawn."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response

from services.console.state import StateDep
from shared.contracts.admin.approvals import (
    DECIDE_APPROVAL,
    LIST_APPROVALS,
    REQUEST_APPROVAL,
    WITHDRAW_APPROVAL,
    ApprovalList,
    ApprovalView,
    NewApproval,
)
from shared.security.auth import AnOperator, Viewer, signed_in
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])
NO_STORE = "no-store"
ApprovalIdPath = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,32}$")]


@router.get(LIST_APPROVALS.path, summary="List what waits for a second person")
async def list_approvals(
    event_id: EventIdPath, _operator: Viewer, request: Request, state: StateDep, response: Response
) -> ApprovalList:
    """An approval itself is told to the operator who asked for it, and to nobody else."""
    response.headers["cache-control"] = NO_STORE
    return ApprovalList(approvals=await state.approvals.of(event_id, signed_in(request).holder))


@router.post(REQUEST_APPROVAL.path, status_code=201, summary="Ask a second person")
async def request_approval(
    event_id: EventIdPath, wanted: NewApproval, _operator: AnOperator, request: Request, state: StateDep
) -> ApprovalView:
    """For ten minutes; at most 20 may wait for one event."""
    return await state.approvals.request(event_id, wanted, signed_in(request))


@router.post(DECIDE_APPROVAL.path, summary="Approve or refuse what another operator asks for")
async def decide_approval(
    event_id: EventIdPath, approval_id: ApprovalIdPath, decision: Literal["approve", "refuse"], _operator: AnOperator,
    request: Request, state: StateDep,
) -> ApprovalView:  # fmt: skip
    """Needs the control's role. An approval is good for ten minutes, for exactly this request of its requester."""
    session = signed_in(request)
    return await state.approvals.decide(event_id, approval_id, session, approves=decision == "approve")


@router.delete(WITHDRAW_APPROVAL.path, status_code=204, summary="Withdraw what you asked a second person for")
async def withdraw_approval(
    event_id: EventIdPath, approval_id: ApprovalIdPath, _operator: AnOperator, request: Request, state: StateDep
) -> None:
    """Also puts away what is done or was refused. An approval that you have received stays good until it expires."""
    await state.approvals.withdraw(event_id, approval_id, signed_in(request))
