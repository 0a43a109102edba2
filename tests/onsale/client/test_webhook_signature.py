"""`verify_webhook` accepts what the reference library of Standard Webhooks signs, and nothing else."""

import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook

from onsale.client import WebhookRefused, verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = '{"type": "order.confirmed", "data": {"reference": "7QK2M9TZ4HXA"}}'


def signed(body: str = BODY, *, at_s: float | None = None) -> dict[str, str]:
    at = datetime.fromtimestamp(int(at_s or time.time()), UTC)
    signature = Webhook(SECRET).sign("msg_1", at, body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


@pytest.mark.parametrize("body", [BODY, BODY.encode()])
def test_a_signed_webhook_is_read(body: str | bytes) -> None:
    assert verify_webhook(SECRET, signed(), body)["data"]["reference"] == "7QK2M9TZ4HXA"


def test_one_of_several_signatures_and_names_in_any_case_are_enough() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    headers["Webhook-Signature"] = f"v1,bm90IG91cnM= {headers['Webhook-Signature']}"
    assert verify_webhook(SECRET, headers, BODY)["type"] == "order.confirmed"


@pytest.mark.parametrize(
    ("changed", "late_s", "body"),
    [
        ({}, 0, BODY.replace("7QK2", "8QK2")),
        ({"webhook-id": "msg_2"}, 0, BODY),
        ({"webhook-signature": "v1,é"}, 0, BODY),
        ({"webhook-signature": ""}, 0, BODY),
        ({}, 400, BODY),
        ({}, -400, BODY),
    ],
    ids=["body", "id", "not ascii", "none", "old", "ahead"],
)
def test_what_was_changed_or_is_old_is_refused(changed: dict[str, str], late_s: int, body: str) -> None:
    headers = signed(at_s=time.time() - late_s) | changed
    with pytest.raises(WebhookRefused):
        verify_webhook(SECRET, headers, body)


def test_a_webhook_without_headers_is_refused() -> None:
    with pytest.raises(WebhookRefused):
        verify_webhook(SECRET, {}, BODY)
