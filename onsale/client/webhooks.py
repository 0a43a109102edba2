"""Verifies a webhook of the suite in the form of Standard Webhooks (https://www.standardwebhooks.com)."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import orjson

TOLERANCE_S = 300


class WebhookRefused(ValueError):
    """The suite did not sign this, or not lately."""


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes | str) -> dict[str, Any]:
    """The event of a received webhook. `body` is the body as it came, before any parser; `secret` the endpoint's
    (`whsec_…`). Raises `WebhookRefused` for a wrong signature, or one more than five minutes old or ahead.
    """
    lower, raw = {k.lower(): v for k, v in headers.items()}, body if isinstance(body, bytes) else body.encode()
    message_id, at, signed = (lower.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not at.isdecimal() or abs(time.time() - int(at)) > TOLERANCE_S:
        raise WebhookRefused("The webhook's time is missing, or too far from ours.")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.digest(key, f"{message_id}.{at}.".encode() + raw, hashlib.sha256)).decode()
    if not any(hmac.compare_digest(f"v1,{expected}".encode(), each.encode()) for each in signed.split(" ")):
        raise WebhookRefused("The webhook's signature is not valid.")
    event: dict[str, Any] = orjson.loads(raw)
    return event
