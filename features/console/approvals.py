"""Requests for a second person's approval: kept until they expire, decided once, by another person than who asked.

The console signs the approval and gives it to the requester alone, who sends it along; the service that does it checks
everything again. So nobody has to trust what is stored here, except that the approver saw what was asked for.
"""

import secrets
import time
from typing import Any

from pydantic import ValidationError
from sqlalchemy import delete, func, insert, literal, select, update
from sqlalchemy.engine import RowMapping

from features.console.schemas import ApprovalView, ApprovedCall, NewApproval
from features.console.tables import approval
from shared.contracts.admin.operation import models
from shared.contracts.fields import refusal
from shared.errors.problems import InvalidRequest, NotAllowed, Problem
from shared.postgres.engine import AsyncEngine
from shared.process.settings import CONTROLS
from shared.runtime.clock import now_ms
from shared.security.auth import (
    APPROVAL_S,
    ApprovedRequest,
    KeyHolder,
    OperatorSession,
    require_role,
    require_second_person,
    sign_approval,
)
from shared.security.tokens import Keyring

PENDING_MAX = 20
ID_BYTES = 12


class UnknownApproval(Problem, status=404):
    """There is no such request for approval, or it has expired or was withdrawn."""


class ApprovalDecided(Problem, status=409):
    """Another operator has decided this meanwhile."""


class TooManyApprovals(Problem, status=409):
    """Too many requests for approval wait already. Decide or withdraw some."""


class Approvals:
    """Those of all events; `controls` are the ones that need a second person."""

    def __init__(self, db: AsyncEngine, keys: Keyring, controls: frozenset[str]) -> None:
        self._db, self._keys, self.controls = db, keys, controls

    async def of(self, event_id: str, reader: KeyHolder | None = None) -> list[ApprovalView]:
        """What has not expired, oldest first; with the approval itself for a reader who asked for it."""
        alive = approval.c.event_id == event_id, approval.c.expires_ms > now_ms()
        async with self._db.connect() as connection:
            rows = await connection.execute(select(approval).where(*alive).order_by(approval.c.created_ms))
            return [_view(row, reader) for row in rows.mappings()]

    async def request(self, event_id: str, wanted: NewApproval, session: OperatorSession) -> ApprovalView:
        """Raises `InvalidRequest`, `NotAllowed`, `TooManyApprovals`."""
        if wanted.control not in self.controls:
            raise InvalidRequest(f"{wanted.control} needs no second person.")
        require_role(session.operator, CONTROLS[wanted.control].role)
        _figures(wanted.control, wanted.body)
        created_ms = now_ms()
        values = {
            "id": secrets.token_urlsafe(ID_BYTES), "event_id": event_id, **wanted.model_dump(), "status": "pending",
            "requested_by": session.operator.name, "requester_fingerprint": session.fingerprint,
            "created_ms": created_ms, "expires_ms": created_ms + APPROVAL_S * 1000,
        }  # fmt: skip
        pending = select(func.count()).where(
            approval.c.event_id == event_id, approval.c.status == "pending", approval.c.expires_ms > created_ms
        )
        new = select(*(literal(value, approval.c[name].type) for name, value in values.items())).where(
            pending.scalar_subquery() < PENDING_MAX
        )
        async with self._db.begin() as connection:
            await connection.execute(
                select(func.pg_advisory_xact_lock(func.hashtextextended("approvals " + event_id, 0)))
            )
            added = await connection.execute(insert(approval).from_select(list(values), new).returning(*approval.c))
            row = added.mappings().first()
        if row is None:
            raise TooManyApprovals
        await self.forget()
        return _view(row, session.holder)

    async def decide(
        self, event_id: str, approval_id: str, session: OperatorSession, *, approves: bool
    ) -> ApprovalView:
        """Approves or refuses. An approval is good for ten minutes from now. Raises `NotAllowed`, `SecondPersonNeeded`,
        `UnknownApproval`, `ApprovalDecided`.
        """
        mine = approval.c.event_id == event_id, approval.c.id == approval_id, approval.c.expires_ms > now_ms()
        row = await self._one(select(approval).where(*mine))
        if row is None:
            raise UnknownApproval
        require_role(session.operator, CONTROLS[row["control"]].role)
        requester = KeyHolder(row["requested_by"], row["requester_fingerprint"])
        require_second_person(requester, session.holder)
        values: dict[str, Any] = {"status": "refused", "decided_by": session.operator.name}
        if approves:
            expires_at_s = int(time.time()) + APPROVAL_S
            token = sign_approval(self._keys, _request(row), requester, session, expires_at_s=expires_at_s)
            values |= {"status": "approved", "token": token, "expires_ms": expires_at_s * 1000}
        undecided = *mine, approval.c.status == "pending"
        decided = await self._one(update(approval).where(*undecided).values(values).returning(*approval.c))
        if decided is None:
            raise ApprovalDecided
        return _view(decided)

    async def withdraw(self, event_id: str, approval_id: str, session: OperatorSession) -> None:
        """Forgets the requester's own request, in whatever state it is. Raises `UnknownApproval`, `NotAllowed`."""
        mine = approval.c.event_id == event_id, approval.c.id == approval_id
        row = await self._one(select(approval).where(*mine))
        if row is None:
            raise UnknownApproval
        if not _is_of(row, session.holder):
            raise NotAllowed("Only who asked for it withdraws it. You may refuse it.")
        await self._one(delete(approval).where(*mine).returning(approval.c.id))

    async def forget(self) -> None:
        """Deletes what has expired."""
        async with self._db.begin() as connection:
            await connection.execute(delete(approval).where(approval.c.expires_ms <= now_ms()))

    async def _one(self, statement: Any) -> RowMapping | None:
        async with self._db.begin() as connection:
            return (await connection.execute(statement)).mappings().first()


def _figures(control: str, body: str) -> dict[str, Any]:
    """The body as the service will read it. Raises `InvalidRequest` unless it would, and if it gives no reason."""
    model = models(CONTROLS[control].body)
    try:
        figures: dict[str, Any] = model.dump_python(model.validate_json(body), mode="json")
    except ValidationError as refused:
        raise InvalidRequest(f"The body: {refusal(refused.errors()[0])}") from refused
    if not (figures.get("reason") or "").strip():
        raise InvalidRequest("Say why: the second person decides by the reason.")
    return figures


def _path(row: RowMapping) -> str:
    return CONTROLS[row["control"]].path.format(event_id=row["event_id"])


def _request(row: RowMapping) -> ApprovedRequest:
    return ApprovedRequest.of(
        _path(row), row["body"].encode(), idempotency_key=row["idempotency_key"], if_match=row["if_match"]
    )


def _is_of(row: RowMapping, reader: KeyHolder | None) -> bool:
    return (row["requested_by"], row["requester_fingerprint"]) == reader


def _view(row: RowMapping, reader: KeyHolder | None = None) -> ApprovalView:
    figures = _figures(row["control"], row["body"])
    call = None
    if row["token"] and _is_of(row, reader):
        call = ApprovedCall(
            path=_path(row), body=row["body"], idempotency_key=row["idempotency_key"], if_match=row["if_match"],
            approval=row["token"],
        )  # fmt: skip
    return ApprovalView(
        id=row["id"], control=row["control"], role=CONTROLS[row["control"]].role, reason=figures.pop("reason"),
        figures=figures, requested_by=row["requested_by"], status=row["status"], decided_by=row["decided_by"],
        expires_ms=row["expires_ms"], call=call,
    )  # fmt: skip
