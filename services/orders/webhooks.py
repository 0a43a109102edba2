"""What providers tell us unasked: verified on the raw bytes, stored, then answered; applied later, as a hint only.

A webhook never says what happened. It says whom to ask: its order is looked up at the provider.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from sqlalchemy.dialects.postgresql import insert

from services.orders.jobs import JobNotAccepted, Jobs
from services.orders.metrics import WEBHOOKS
from services.orders.payments.provider import Provider, SignatureInvalid, WebhookNote
from services.orders.problems import BadSignature, UnknownProvider
from services.orders.tables import webhook_inbox
from shared.clock import now_s
from shared.postgres import AsyncEngine, statement

router = APIRouter(tags=["webhooks"])
_APPLY = statement(__package__, "apply_hints")
TEXT_MAX_CHARS = 200


@router.post("/webhooks/{provider}", summary="A payment provider tells of a charge")
async def receive(provider: Annotated[str, Path(pattern="^[a-z]{1,32}$")], request: Request) -> dict[str, bool]:
    room = request.app.state.room
    known: Provider | None = room.providers.get(provider)
    if known is None:
        raise UnknownProvider
    raw = await request.body()
    note = _verified(known, request.headers, raw)
    await store(room.engine, room.jobs, provider, note, raw)
    return {"stored": True}


def _verified(provider: Provider, headers: Mapping[str, str], raw: bytes) -> WebhookNote:
    try:
        note = provider.verify_webhook(headers, raw, now_s=now_s())
    except SignatureInvalid as forged:
        WEBHOOKS.labels(provider.name, "forged").inc()
        raise BadSignature from forged
    if max(len(note.webhook_id), len(note.kind), len(note.reference)) > TEXT_MAX_CHARS:
        raise BadSignature("A name in this webhook is too long to be ours.")
    return note


async def store(engine: AsyncEngine, jobs: Jobs, provider: str, note: WebhookNote, raw: bytes) -> None:
    """Keeps a webhook once, however often it comes. Without a job engine the sweep finds it."""
    row: dict[str, Any] = {"provider": provider, "webhook_id": note.webhook_id, "kind": note.kind,
                           "reference": note.reference, "raw": raw}  # fmt: skip
    for with_job in (True, False):
        try:
            async with engine.begin() as connection:
                kept = await connection.execute(insert(webhook_inbox).values(**row).on_conflict_do_nothing())
                if kept.rowcount and with_job:
                    await jobs.wake_up(connection, note.reference)
            break
        except JobNotAccepted:
            continue
    WEBHOOKS.labels(provider, "stored").inc()


async def apply_hints(engine: AsyncEngine) -> int:
    """Makes the orders that webhooks are about due; how many webhooks found theirs."""
    async with engine.begin() as connection:
        applied = [row.applied for row in await connection.execute(_APPLY)]
    return sum(applied)
