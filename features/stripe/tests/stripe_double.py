"""Stripe's objects by its public reference: intents, checkout sessions, charges, refunds, lists, and its webhooks.

The payment method chooses how the bank behaves: `pm_card_visa`, `pm_card_chargeDeclined`,
`pm_card_threeDSecure2Required`, `pm_processing`, `pm_capture_fails_once`, `pm_capture_fails`, `pm_double`. Two more are
known to `conftest.py` alone.
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


class StripeError(Exception):
    """An error answer of Stripe."""

    def __init__(self, status: int, kind: str, code: str, **more: Any) -> None:
        self.status, self.error = status, {"type": kind, "message": code, **({"code": code} if code else {}), **more}


def _state(code: str) -> StripeError:
    return StripeError(400, "invalid_request_error", code)


def _check_words(params: Json) -> None:
    """Refuses what Stripe refuses of a statement descriptor and of metadata."""
    if "statement_descriptor" in params:
        raise _refused("statement_descriptor", "is not supported for cards: use statement_descriptor_suffix")
    suffix = params.get("statement_descriptor_suffix", "x")
    if len(suffix) > 22:
        raise _refused("statement_descriptor_suffix", f"must be at most 22 characters, {suffix} is longer")
    if not any(sign.isalpha() for sign in suffix):
        raise _refused("statement_descriptor_suffix", "must contain at least one letter")
    if set(suffix) & set("<>\\'\"*") or not all(" " <= sign < "\u0250" and sign != "\x7f" for sign in suffix):
        raise _refused("statement_descriptor_suffix", "must be Latin characters, without < > \\ ' \" *")
    metadata = params.get("metadata", {})
    if len(metadata) > 50 or any(len(name) > 40 or len(value) > 500 for name, value in metadata.items()):
        raise _refused("metadata", "is too long")


def _refused(param: str, why: str) -> StripeError:
    return StripeError(400, "invalid_request_error", "", param=param, message=f"The {param} {why}.")


class StripeDouble:
    """Stripe's objects. `send_webhook` gets each webhook and its signature, `copies` times; if `held` is a list,
    webhooks are appended to it instead, and the test sends them.
    """

    def __init__(self) -> None:
        self.send_webhook: SendWebhook | None = None
        self.clear()

    def clear(self) -> None:
        self.copies = 1
        self.held: list[bytes] | None = None
        self.objects: dict[str, Json] = {}
        self.capture_attempts: Counter[str] = Counter()
        self.payment_methods: dict[str, str] = {}
        self.intent_data: dict[str, Json] = {}
        self._ids = itertools.count()
        self._sent: set[asyncio.Task[None]] = set()

    # Intents

    def create_intent(self, params: Json) -> Json:
        method = params["payment_method"]
        intent = self.intent(params, amount=int(params["amount"]), currency=params["currency"])
        self.payment_methods[intent["id"]] = method
        if method == "pm_card_chargeDeclined":
            intent["last_payment_error"] = {"type": "card_error", "code": "card_declined", "decline_code": "no_money"}
            self._charge(intent, "failed")
            self._move(intent, "requires_payment_method", "payment_failed")
            raise StripeError(402, "card_error", "card_declined", decline_code="no_money", payment_intent=dict(intent))
        if method == "pm_card_threeDSecure2Required":
            if params.get("error_on_requires_action") == "true":
                self._move(intent, "requires_payment_method", "payment_failed")
                raise StripeError(402, "card_error", "authentication_required", payment_intent=dict(intent))
            url = f"https://bank.example/{intent['id']}"
            intent["next_action"] = {"type": "redirect_to_url", "redirect_to_url": {"url": url}}
            return self._move(intent, "requires_action", "requires_action")
        if method == "pm_processing":
            self._charge(intent, "pending")
            return self._move(intent, "processing", "processing")
        if method == "pm_double":
            self.pay(self.intent(params, amount=int(params["amount"]), currency=params["currency"], key="twin"))
        return self.pay(intent)

    def intent(self, params: Json, *, amount: int, currency: str, key: str | None = None) -> Json:
        _check_words(params)
        metadata = dict(params.get("metadata", {})) | ({"key": key} if key else {})
        return self._keep({
            "id": self._id("pi"), "object": "payment_intent", "amount": amount, "currency": currency,
            "amount_received": 0, "amount_capturable": 0, "status": "requires_confirmation", "metadata": metadata,
            "transfer_group": params.get("transfer_group"), "capture_method": params.get("capture_method", "automatic"),
            "return_url": params.get("return_url"), "next_action": None, "latest_charge": None,
            "last_payment_error": None, "canceled_at": None, "description": params.get("description"),
            "statement_descriptor_suffix": params.get("statement_descriptor_suffix"),
        })  # fmt: skip

    def _charge(self, intent: Json, status: str) -> None:
        charge = self._keep({
            "id": self._id("ch"), "object": "charge", "amount": intent["amount"], "currency": intent["currency"],
            "status": status, "payment_intent": intent["id"], "transfer_group": intent["transfer_group"],
            "amount_refunded": 0, "disputed": False, "metadata": dict(intent["metadata"]),
        })  # fmt: skip
        intent["latest_charge"] = charge["id"]

    def pay(self, intent: Json) -> Json:
        """The bank agrees to the payment."""
        intent["next_action"] = None
        self._charge(intent, "succeeded")
        if intent["capture_method"] == "manual":
            intent["amount_capturable"] = intent["amount"]
            return self._move(intent, "requires_capture", "amount_capturable_updated")
        intent["amount_received"] = intent["amount"]
        return self._move(intent, "succeeded", "succeeded")

    def cancel_intent(self, params: Json, of: str) -> Json:
        intent = self.retrieve(params, of)
        if intent["status"] in ("succeeded", "canceled", "processing"):
            raise _state("payment_intent_unexpected_state")
        intent["canceled_at"], intent["amount_capturable"] = int(time.time()), 0
        return self._move(intent, "canceled", "canceled")

    def capture(self, params: Json, of: str) -> Json:
        intent = self.retrieve(params, of)
        if intent["status"] != "requires_capture":
            raise _state("payment_intent_unexpected_state")
        failures = {"pm_capture_fails_once": 1, "pm_capture_fails": 1000}.get(self.payment_methods.get(of, ""), 0)
        self.capture_attempts[of] += 1
        if self.capture_attempts[of] <= failures:
            raise StripeError(500, "api_error", "oh")
        intent["amount_received"], intent["amount_capturable"] = intent["amount"], 0
        return self._move(intent, "succeeded", "succeeded")

    # Checkout sessions

    def create_page(self, params: Json) -> Json:
        price = params["line_items"]["0"]["price_data"]
        _check_words(params["payment_intent_data"])
        page = self._keep({
            "id": self._id("cs_test"), "object": "checkout.session", "status": "open", "payment_status": "unpaid",
            "amount_total": int(price["unit_amount"]), "currency": price["currency"], "payment_intent": None,
            "metadata": dict(params["metadata"]), "success_url": params["success_url"],
            "product": price["product_data"]["name"],
        })  # fmt: skip
        page["url"] = f"https://checkout.example/{page['id']}"
        self.intent_data[page["id"]] = params["payment_intent_data"]
        return page

    def complete_page(self, page_id: str, *, declined: bool = False) -> str:
        """The fan pays, or has a card declined and stays on the page. Returns the URL they are sent to."""
        page = self.objects[page_id]
        intent = self.objects.get(page["payment_intent"] or "")
        if intent is None:
            data = self.intent_data[page_id]
            intent = self.intent(data, amount=page["amount_total"], currency=page["currency"])
            page["payment_intent"] = intent["id"]
        if declined:
            self._charge(intent, "failed")
            intent["last_payment_error"] = {"type": "card_error", "code": "card_declined"}
            self._move(intent, "requires_payment_method", "payment_failed")
        else:
            page["status"], page["payment_status"], page["url"] = "complete", "paid", None
            self.pay(intent)
            self._emit("checkout.session.completed", page)
        return str(page["success_url"])

    def expire(self, params: Json, of: str) -> Json:
        page = self.retrieve(params, of)
        if page["status"] != "open":
            raise _state("resource_not_open")
        page["status"], page["url"] = "expired", None
        self._emit("checkout.session.expired", page)
        return page

    # Refunds and lists

    def create_refund(self, params: Json) -> Json:
        intent = self.retrieve(params, params["payment_intent"])
        charge = self.objects.get(intent["latest_charge"] or "")
        if charge is None or not intent["amount_received"]:
            raise _state("charge_not_captured")
        if charge["amount_refunded"] + int(params["amount"]) > intent["amount_received"]:
            raise _state("charge_already_refunded")
        charge["amount_refunded"] += int(params["amount"])
        refund = self._keep({
            "id": self._id("re"), "object": "refund", "amount": int(params["amount"]), "status": "succeeded",
            "payment_intent": intent["id"], "metadata": dict(params.get("metadata", {})),
        })  # fmt: skip
        self._emit("charge.refunded", charge)
        self._emit("refund.created", refund)
        return refund

    def dispute(self, intent_id: str, status: str) -> Json:
        """The bank opens a dispute of an intent's charge, or the open one gets another status."""
        charge = self.objects[self.objects[intent_id]["latest_charge"]]
        found = self.list_disputes({"payment_intent": intent_id})["data"]
        if not found:
            charge["disputed"] = True
            opened = self._keep({
                "id": self._id("dp"), "object": "dispute", "amount": charge["amount"], "currency": charge["currency"],
                "charge": charge["id"], "payment_intent": intent_id, "status": status, "metadata": {},
                "balance_transactions": [],
            })  # fmt: skip
            self._balance(opened, -charge["amount"] if not status.startswith("warning") else 0)
            self._emit("charge.dispute.created", opened)
            return opened
        found[0]["status"] = status
        self._balance(found[0], charge["amount"] if status == "won" else 0)
        self._emit("charge.dispute.closed", found[0])
        return dict(found[0])

    def _balance(self, dispute: Json, amount: int) -> None:
        if amount:  # in the account's own currency, and another one here
            dispute["balance_transactions"].append({"object": "balance_transaction", "amount": amount * 11 // 10})

    def list_disputes(self, params: Json) -> Json:
        return self._list("dispute", params, payment_intent=params["payment_intent"])

    def list_refunds(self, params: Json) -> Json:
        return self._list("refund", params, payment_intent=params["payment_intent"])

    def list_charges(self, params: Json) -> Json:
        return self._list("charge", params, transfer_group=params["transfer_group"])

    def list_intents(self, params: Json) -> Json:
        return self._list("payment_intent", params)

    def _list(self, kind: str, params: Json, **matching: str) -> Json:
        """Objects of a kind, newest first, at most a hundred."""
        since_s, limit = int(params.get("created", {}).get("gte", 0)), min(int(params.get("limit", 10)), 100)
        rows = [row for row in reversed(self.objects.values()) if row["object"] == kind and row["created"] >= since_s]
        rows = [row for row in rows if all(row[name] == value for name, value in matching.items())]
        ids = [row["id"] for row in rows]
        start = ids.index(params["starting_after"]) + 1 if "starting_after" in params else 0
        return {"object": "list", "data": rows[start : start + limit], "has_more": len(rows) > start + limit}

    def retrieve(self, params: Json, of: str) -> Json:
        if of not in self.objects:
            raise StripeError(404, "invalid_request_error", "resource_missing")
        return self.objects[of]

    # Storage and webhooks

    def _keep(self, row: Json) -> Json:
        row["created"] = int(time.time())
        self.objects[row["id"]] = row
        return row

    def _id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids)}_{secrets.token_hex(6)}"

    def _move(self, intent: Json, status: str, event: str) -> Json:
        intent["status"] = status
        self._emit(f"payment_intent.{event}", intent)
        return intent

    def _emit(self, kind: str, subject: Json) -> None:
        event = {"id": self._id("evt"), "object": "event", "type": kind, "created": int(time.time())}
        body = orjson.dumps(event | {"data": {"object": subject}})
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
