"""Credentials with which fans and order pages open streams."""

from shared.runtime.clock import now_ms
from shared.security.tokens import Pass, QueueToken, QueueTokens, development_keys, sign_order_token, sign_pass
from tests.notifier.frames import EVENT, REFERENCE


def queue_token(join_seq: int, *, event_id: str = EVENT, epoch: int = 1, lane: int = 0) -> str:
    token = QueueToken(
        event_id=event_id, epoch=epoch, lane=lane, join_seq=join_seq, holder=f"holder-{lane}-{join_seq}", issued_at_s=0
    )
    return QueueTokens(development_keys("queue-token")).sign(token)


def signed_pass(join_seq: int = 1, *, event_id: str = EVENT, until_s: float | None = None, epoch: int = 1) -> str:
    expires = int(now_ms() / 1000 + 600 if until_s is None else until_s)
    admission = Pass(
        event_id=event_id,
        holder=f"holder-0-{join_seq}",
        jti="jti",
        epoch=epoch,
        lane=0,
        join_seq=join_seq,
        qty_max=6,
        issued_at_s=expires - 900,
        expires_at_s=expires,
    )
    return sign_pass(development_keys("pass"), admission)


def order_token(reference: str = REFERENCE) -> str:
    return sign_order_token(development_keys("order-token"), reference)
