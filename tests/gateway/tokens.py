"""Queue tokens and passes as the services sign them."""

import time
from typing import Any

from shared.security.tokens import Keyring, Pass, QueueToken, QueueTokens, development_keys, sign_pass


def queue_token(
    *, event_id: str = "show", epoch: int = 1, join_seq: int = 500, holder: str = "holder", keys: Keyring | None = None
) -> str:
    return QueueTokens(keys or development_keys("queue-token")).sign(
        QueueToken(
            event_id=event_id, epoch=epoch, lane=0, join_seq=join_seq, holder=holder, issued_at_s=int(time.time())
        )
    )


def an_admission(**changes: Any) -> Pass:
    now_s = int(time.time())
    fields = {"event_id": "show", "holder": "holder", "jti": "1-0-1-1", "epoch": 1, "lane": 0, "join_seq": 1,
              "qty_max": 6, "issued_at_s": now_s, "expires_at_s": now_s + 60, **changes}  # fmt: skip
    return Pass(**fields)


def signed_pass(*, keys: str = "pass", **changes: Any) -> str:
    """A pass signed with the development keys of this name."""
    return sign_pass(development_keys(keys), an_admission(**changes))
