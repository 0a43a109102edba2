"""What Stripe keeps, by its public reference: intents, hosted pages, charges, refunds, lists, and its webhooks.

A token says how the bank behaves: `pm_card_visa`, `pm_card_chargeDeclined`, `pm_card_threeDSecure2Required`,
`pm_processing`, `pm_capture_fails_once`, `pm_capture_fails`, `pm_double`; two more are the doors' own.
"""

import asyncio
import hashlib
import hmac
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

WEBHOOK_SECRET = "whsec_double"
Json = dict[str, Any]
SendWebhook = Callable[[bytes, str], Awaitable[None]]


class Refusal(Exception):
    """An error as Stripe words it."""

    def __init__(self, status: int, kind: str, code: str, **more: Any) -> None:
        self.status, self.error = status, {"type": kind, "code": code, "message": code, **more}


def _state(code: str) -> Refusal:
    return Refusal(400, "invalid_request_error", code)


class StripeDouble:
    """The books. `tell` is given each webhook with its signature, `copies` times; those in `held` wait for the test."""

    def __init__(self) -> None:
        self.send_webhook: SendWebhook | None = None
        self.clear()

    def clear(self) -> None:
        self.copies = 1
        self.held: list[bytes] | None = None
        self.objects: dict[str, Json] = {}
        self.failed: Counter[str] = Counter()
        self.behaves: dict[str, str] = {}
        self._ids = itertools.count()
        self._sent: set[asyncio.Task[None]] = set()

    # -- intents ---------------------------------------------------------------------------------------------------

    def create_intent(self, asked: Json) -> Json:
        token = asked["payment_method"]
        intent = self.intent(asked, amount=int(asked["amount"]), currency=asked["currency"])
        self.behaves[intent["id"]] = token
        if token == "pm_card_chargeDeclined":
            intent["last_payment_error"] = {"type": "card_error", "code": "card_declined", "decline_code": "no_money"}
            self._charge(intent, "failed")
            self._move(intent, "requires_payment_method", "payment_failed")
            raise Refusal(402, "card_error", "card_declined", decline_code="no_money", payment_intent=dict(intent))
        if token == "pm_card_threeDSecure2Required":
            if asked.get("error_on_requires_action") == "true":
                self._move(intent, "requires_payment_method", "payment_failed")
                raise Refusal(402, "card_error", "authentication_required", payment_intent=dict(intent))
            url = f"https://bank.example/{intent['id']}"
            intent["next_action"] = {"type": "redirect_to_url", "redirect_to_url": {"url": url}}
            return self._move(intent, "requires_action", "requires_action")
        if token == "pm_processing":
            self._charge(intent, "pending")
            return self._move(intent, "processing", "processing")
        if token == "pm_double":
            self.pay(self.intent(asked, amount=int(asked["amount"]), currency=asked["currency"], key="twin"))
        return self.pay(intent)

    def intent(self, asked: Json, *, amount: int, currency: str, key: str | None = None) -> Json:
        names = dict(asked.get("metadata", {})) | ({"key": key} if key else {})
        return self._keep({
            "id": self._id("pi"), "object": "payment_intent", "amount": amount, "currency": currency,
            "amount_received": 0, "amount_capturable": 0, "status": "requires_confirmation", "metadata": names,
            "transfer_group": asked.get("transfer_group"), "capture_method": asked.get("capture_method", "automatic"),
            "return_url": asked.get("return_url"), "next_action": None, "latest_charge": None,
            "last_payment_error": None, "canceled_at": None,
        })  # fmt: skip

    def _charge(self, intent: Json, status: str) -> None:
        charge = self._keep({
            "id": self._id("ch"), "object": "charge", "amount": intent["amount"], "currency": intent["currency"],
            "status": status, "payment_intent": intent["id"], "transfer_group": intent["transfer_group"],
            "amount_refunded": 0, "metadata": dict(intent["metadata"]),
        })  # fmt: skip
        intent["latest_charge"] = charge["id"]

    def pay(self, intent: Json) -> Json:
        """The bank agrees, at once or after the fan did."""
        intent["next_action"] = None
        self._charge(intent, "succeeded")
        if intent["capture_method"] == "manual":
            intent["amount_capturable"] = intent["amount"]
            return self._move(intent, "requires_capture", "amount_capturable_updated")
        intent["amount_received"] = intent["amount"]
        return self._move(intent, "succeeded", "succeeded")

    def cancel_intent(self, asked: Json, of: str) -> Json:
        intent = self.retrieve(asked, of)
        if intent["status"] in ("succeeded", "canceled", "processing"):
            raise _state("payment_intent_unexpected_state")
        intent["canceled_at"], intent["amount_capturable"] = int(time.time()), 0
        return self._move(intent, "canceled", "canceled")

    def capture(self, asked: Json, of: str) -> Json:
        intent = self.retrieve(asked, of)
        if intent["status"] != "requires_capture":
            raise _state("payment_intent_unexpected_state")
        failures = {"pm_capture_fails_once": 1, "pm_capture_fails": 1000}.get(self.behaves.get(of, ""), 0)
        self.failed[of] += 1
        if self.failed[of] <= failures:
            raise Refusal(500, "api_error", "oh")
        intent["amount_received"], intent["amount_capturable"] = intent["amount"], 0
        return self._move(intent, "succeeded", "succeeded")

    # -- hosted pages ----------------------------------------------------------------------------------------------

    def create_page(self, asked: Json) -> Json:
        price = asked["line_items"]["0"]["price_data"]
        page = self._keep({
            "id": self._id("cs_test"), "object": "checkout.session", "status": "open", "payment_status": "unpaid",
            "amount_total": int(price["unit_amount"]), "currency": price["currency"], "payment_intent": None,
            "metadata": dict(asked["metadata"]), "success_url": asked["success_url"],
        })  # fmt: skip
        page["url"] = f"https://checkout.example/{page['id']}"
        self.behaves[page["id"]] = orjson.dumps(asked["payment_intent_data"]).decode()
        return page

    def choose(self, page_id: str, *, declined: bool = False) -> str:
        """What the fan does on the page; where they are sent next. A declined card may be tried again there."""
        page = self.objects[page_id]
        intent = self.objects.get(page["payment_intent"] or "")
        if intent is None:
            data = orjson.loads(self.behaves[page_id])
            intent = self.intent(data, amount=page["amount_total"], currency=page["currency"])
            page["payment_intent"] = intent["id"]
        if declined:
            self._charge(intent, "failed")
            intent["last_payment_error"] = {"type": "card_error", "code": "card_declined"}
            self._move(intent, "requires_payment_method", "payment_failed")
        else:
            page["status"], page["payment_status"], page["url"] = "complete", "paid", None
            self.pay(intent)
            self._happened("checkout.session.completed", page)
        return str(page["success_url"])

    def expire(self, asked: Json, of: str) -> Json:
        page = self.retrieve(asked, of)
        if page["status"] != "open":
            raise _state("resource_not_open")
        page["status"], page["url"] = "expired", None
        self._happened("checkout.session.expired", page)
        return page

    # -- refunds and lists -----------------------------------------------------------------------------------------

    def create_refund(self, asked: Json) -> Json:
        intent = self.retrieve(asked, asked["payment_intent"])
        charge = self.objects.get(intent["latest_charge"] or "")
        if charge is None or not intent["amount_received"]:
            raise _state("charge_not_captured")
        if charge["amount_refunded"] + int(asked["amount"]) > intent["amount_received"]:
            raise _state("charge_already_refunded")
        charge["amount_refunded"] += int(asked["amount"])
        refund = self._keep({
            "id": self._id("re"), "object": "refund", "amount": int(asked["amount"]), "status": "succeeded",
            "payment_intent": intent["id"], "metadata": dict(asked["metadata"]),
        })  # fmt: skip
        self._happened("charge.refunded", charge)
        return refund

    def list_refunds(self, asked: Json) -> Json:
        return self._list("refund", asked, payment_intent=asked["payment_intent"])

    def list_charges(self, asked: Json) -> Json:
        return self._list("charge", asked, transfer_group=asked["transfer_group"])

    def list_intents(self, asked: Json) -> Json:
        return self._list("payment_intent", asked)

    def _list(self, kind: str, asked: Json, **wanted: str) -> Json:
        """Newest first, at most a hundred."""
        since_s, limit = int(asked.get("created", {}).get("gte", 0)), min(int(asked.get("limit", 10)), 100)
        rows = [row for row in reversed(self.objects.values()) if row["object"] == kind and row["created"] >= since_s]
        rows = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
        ids = [row["id"] for row in rows]
        start = ids.index(asked["starting_after"]) + 1 if "starting_after" in asked else 0
        return {"object": "list", "data": rows[start : start + limit], "has_more": len(rows) > start + limit}

    def retrieve(self, asked: Json, of: str) -> Json:
        if of not in self.objects:
            raise Refusal(404, "invalid_request_error", "resource_missing")
        return self.objects[of]

    # -- the rest --------------------------------------------------------------------------------------------------

    def _keep(self, row: Json) -> Json:
        row["created"] = int(time.time())
        self.objects[row["id"]] = row
        return row

    def _id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids)}_{secrets.token_hex(6)}"

    def _move(self, intent: Json, status: str, happened: str) -> Json:
        intent["status"] = status
        self._happened(f"payment_intent.{happened}", intent)
        return intent

    def _happened(self, kind: str, about: Json) -> None:
        event = {"id": self._id("evt"), "object": "event", "type": kind, "created": int(time.time())}
        body = orjson.dumps(event | {"data": {"object": about}})
        if self.held is not None:
            self.held.append(body)
        else:
            self.send(body)

    def send(self, body: bytes) -> None:
        for _ in range(self.copies if self.send_webhook else 0):
            assert self.send_webhook is not None
            task = asyncio.ensure_future(self.send_webhook(body, signed(body)))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)


def signed(body: bytes, *, secret: str = WEBHOOK_SECRET, at_s: int | None = None) -> str:
    """The value of `Stripe-Signature`."""
    at_s = int(time.time()) if at_s is None else at_s
    return f"t={at_s},v1={hmac.new(secret.encode(), f'{at_s}.'.encode() + body, hashlib.sha256).hexdigest()}"
