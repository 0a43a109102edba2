"""An orders process under test, and the requests of customers and operators.

Names of shows in many scripts, and a very long word.

A mail server on a port of its own, which fails on command and keeps the mails it accepts.
"""

import asyncio
import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import httpx
from aiosmtpd.smtp import SMTP, Envelope, Session
from fastapi import FastAPI
from sqlalchemy import Executable, select, text

from features.mail.orders.compose import MailComposer
from features.mail.orders.dispatcher import MailDispatcher
from features.mail.orders.smtp import MailServer, MailSettings, server_of
from onsale.sandbox.webhooks import sign
from services.orders.model.order import Order, order_reference
from services.orders.model.view import order_frame
from services.orders.settings import Settings
from services.orders.state import State
from services.orders.store.store import read_many
from services.orders.tables import mail, money_entry
from shared.contracts.inventory import ReservedItem
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass, development_keys, sign_pass
from tests.orders.inventory import EVENT, Inventory
from tests.support.spreadsheets import csv_rows
from tests.support.wait import wait_until

ADMIN_SECRET = "an operator's secret for tests"
ROOT_SECRET = "an admin's secret for tests only"
VIEWER_SECRET = "a viewer's secret for tests only"
OPERATOR = {"authorization": f"Bearer {ADMIN_SECRET}"}
ROOT = {"authorization": f"Bearer {ROOT_SECRET}"}
VIEWER = {"authorization": f"Bearer {VIEWER_SECRET}"}


def pass_of(holder: str = "fan", *, event_id: str = EVENT, expires_in_s: int = 600) -> str:
    now = now_ms() // 1000
    admission = Pass(event_id, holder, f"0-0-{holder}", 0, 0, 7, 6, now - 700, now + expires_in_s)
    return sign_pass(development_keys("pass"), admission)


def pass_header(holder: str = "fan", **fields: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {pass_of(holder, **fields)}"}


@dataclass
class Shop:
    """An orders process with its providers and inventory."""

    app: FastAPI
    http: httpx.AsyncClient
    sandbox: httpx.AsyncClient
    inventory: Inventory
    settings: Settings

    @property
    def state(self) -> State:
        state: State = self.app.state.deps
        return state

    def body(
        self, reservation_id: str, *, method: str = "ok", total_minor: int = 6800, **payment: Any
    ) -> dict[str, Any]:
        return {
            "reservation_id": reservation_id,
            "expected_total_minor": total_minor,
            "currency": "EUR",
            "customer": {"name": "Ada", "email": "ada@example.org"},
            "payment": {"provider": "sandbox", "method": method, **payment},
        }

    async def post(
        self, body: dict[str, Any], *, key: str | None = "a-key", holder: str = "fan", **headers: str
    ) -> httpx.Response:
        sent = pass_header(holder) | headers
        if key is not None:
            sent["idempotency-key"] = key
        return await self.http.post("/orders", json=body, headers=sent)

    async def order(self, *, method: str = "ok", key: str | None = None, **payment: Any) -> str:
        """Makes a hold and orders it; returns the reference."""
        return await self.order_of(await self.inventory.hold(), method=method, key=key, **payment)

    async def order_of(self, reservation_id: str, *, method: str = "ok", key: str | None = None, **payment: Any) -> str:
        answer = await self.post(self.body(reservation_id, method=method, **payment), key=key or uuid.uuid4().hex)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["reference"])

    async def bought(self, seat_id: str = "A-1-1", *, name: str = "Ada", email: str = "ada@example.org") -> str:
        """Sells a seat to a customer of this name; returns the reference."""
        seat = ReservedItem(section_id="A", seat_id=seat_id, unit_price_minor=6800)
        reservation_id = await self.inventory.hold(lines=[seat])
        body = self.body(reservation_id) | {"customer": {"name": name, "email": email, "phone": "+49 30 1"}}
        reference = str((await self.post(body, key=reservation_id)).json()["reference"])
        await self.wait_for_status(reference, "confirmed")
        return reference

    async def pay_again(
        self, reference: str, *, method: str = "ok", key: str = "second", provider: str = "sandbox", **payment: Any
    ) -> httpx.Response:
        """Retries the payment of an order."""
        body = {"payment": {"provider": provider, "method": method, **payment}}
        headers = pass_header() | {"idempotency-key": key}
        return await self.http.post(f"/orders/{reference}/payments", json=body, headers=headers)

    async def cancel(self, reference: str, *, holder: str = "fan", event_id: str = EVENT) -> httpx.Response:
        headers = pass_header(holder, event_id=event_id)
        return await self.http.post(f"/orders/{reference}/cancel", headers=headers)

    async def view(self, reference: str, holder: str = "fan") -> dict[str, Any]:
        """The order as its customer reads it."""
        answer = await self.http.get(f"/orders/{reference}", headers=pass_header(holder))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def status(self, reference: str) -> str:
        return str((await self.view(reference))["status"])

    async def status_is(self, reference: str, status: str) -> bool:
        return await self.status(reference) == status

    async def row(self, reference: str) -> Order:
        """The order as the database has it."""
        return (await read_many(self.state.db, [reference]))[reference]

    async def attempt_is(self, reference: str, status: str) -> bool:
        """By the database: in the API an attempt is `processing` before the provider was called."""
        attempt = (await self.row(reference)).attempt
        return attempt is not None and attempt.status == status

    async def charges(self, reference: str | None = None) -> list[dict[str, Any]]:
        """The sandbox's charges, of one order or of all."""
        params = {"limit": "1000"} | ({"reference": reference} if reference else {})
        return list((await self.sandbox.get("/charges", params=params)).json()["charges"])

    async def charge_at_sandbox(self, reference: str, *, amount_minor: int, method: str = "ok", key: str) -> str:
        """A charge under this reference that orders did not create; returns its id."""
        charge = {"reference": reference, "amount_minor": amount_minor, "currency": "EUR", "method": method}
        answer = await self.sandbox.post("/charges", json=charge, headers={"idempotency-key": key})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def deliver(self, webhook: bytes) -> None:
        """Sends the webhook as the sandbox signs it."""
        [secret, *_] = self.settings.sandbox_webhook_secrets
        headers = {"sandbox-signature": sign(webhook, secret=secret, at_s=int(time.time()))}
        answer = await self.http.post("/webhooks/sandbox", content=webhook, headers=headers)
        assert answer.status_code == 200, answer.text

    async def net_minor(self, reference: str) -> int:
        """Charged minus refunded and withdrawn for this order, by the provider's records."""
        charges = await self.charges(reference)
        return sum(c["captured_minor"] - c["refunded_minor"] - withdrawn_minor(c) for c in charges)

    async def wait_until_settled(self, reference: str, *statuses: str, timeout_s: float = 60.0) -> str:
        """Waits for one of these statuses with the provider's records agreeing; returns the status."""

        async def agrees() -> bool:
            status = await self.status(reference)
            sale_minor = 6800 if status == "confirmed" else 0
            return status in statuses and await self.net_minor(reference) == sale_minor

        await wait_until(agrees, timeout_s=timeout_s, interval_s=0.03)
        return await self.status(reference)

    async def wait_for_status(self, reference: str, *statuses: str) -> None:
        """Waits for one of these statuses with no refund or return pending."""

        async def reached() -> bool:
            order = await self.row(reference)
            return order.status in statuses and not (order.refunds or order.returns or order.review_decision)

        await wait_until(reached, timeout_s=10, interval_s=0.02)

    @contextmanager
    def busy_workers(self) -> Iterator[None]:
        """No worker is free meanwhile."""
        workers = self.state.worker
        most, workers._workers_max = workers._workers_max, 0
        yield
        workers._workers_max = most
        workers.begin_ready()

    async def lose(self, *references: str) -> None:
        """The process that has these orders in work is silent for too long: they are anybody's."""
        for reference in references:
            self.state.worker._held.pop(reference, None)
            await self.run(
                "UPDATE orders.open_order SET owner = 'silent' WHERE reference = :reference", reference=reference
            )

    async def wait_until_idle(self) -> None:
        """Waits until no worker processes an order."""
        await wait_until(lambda: not self.state.worker.in_work())

    async def admin_post(self, path: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        """An operator's action on an order or an event."""
        headers = OPERATOR | ({"idempotency-key": key} if key else {})
        return await self.http.post(f"/admin/orders/{path}", json={"reason": "the show moved", **body}, headers=headers)

    async def admin_get(self, path: str = "", **params: Any) -> dict[str, Any]:
        answer = await self.http.get(f"/admin/orders{path}", params=params, headers=OPERATOR)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def admin_export(self) -> bytes:
        """The orders of the event as CSV."""
        answer = await self.http.get("/admin/orders/export.csv", params={"event_id": EVENT}, headers=OPERATOR)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        return answer.content

    async def expire(self, reference: str, *, ago_s: int = 0) -> None:
        """Moves the order's deadline to `ago_s` seconds ago and wakes its worker, which may have read the old one."""
        await self.run(
            'UPDATE orders."order" SET expires_at = now() - make_interval(secs => :ago_s) WHERE reference = :reference',
            reference=reference, ago_s=ago_s,
        )  # fmt: skip
        await self.state.store.wake([reference])

    async def change_parts(self, reference: str, column: str, change: Callable[[Any], object]) -> None:
        """Changes what the row of an order holds as JSON: its `lines`, `extras`, `attempts` or `journal`."""
        parts = await self.scalar(
            f'SELECT {column} FROM orders."order" WHERE reference = :reference', reference=reference
        )
        change(parts)
        await self.run(
            f'UPDATE orders."order" SET {column} = CAST(:parts AS jsonb) WHERE reference = :reference',
            reference=reference, parts=json.dumps(parts),
        )  # fmt: skip

    async def run(self, statement: str, **values: Any) -> None:
        async with self.state.db.begin() as connection:
            await connection.execute(text(statement), values)

    async def query(self, statement: str | Executable, **values: Any) -> list[Any]:
        async with self.state.db.connect() as connection:
            return list(await connection.execute(text(statement) if isinstance(statement, str) else statement, values))

    async def scalar(self, statement: str | Executable, **values: Any) -> Any:
        """The first column of the first row."""
        return (await self.query(statement, **values))[0][0]

    async def money_entries(self) -> list[tuple[str, str, int]]:
        """Every money entry of orders: kind, reference, amount."""
        rows = await self.query(select(money_entry.c.kind, money_entry.c.reference, money_entry.c.amount_minor))
        return sorted((row.kind, row.reference, row.amount_minor) for row in rows)

    async def provider_entries(self) -> list[tuple[str, str, int]]:
        """The same by the provider's records."""
        charges = await self.charges()
        captured = [("charge", c["reference"], c["captured_minor"]) for c in charges if c["captured_minor"]]
        refunded = [("refund", c["reference"], c["refunded_minor"]) for c in charges if c["refunded_minor"]]
        withdrawn = [("dispute", c["reference"], withdrawn_minor(c)) for c in charges if withdrawn_minor(c)]
        return sorted(captured + refunded + withdrawn)

    async def violated_invariants(self) -> dict[str, str]:
        """What `onsale audit` reports: the details by invariant."""
        answer = await self.http.get(f"/admin/orders/events/{EVENT}/audit", headers=VIEWER)
        assert answer.status_code == 200, answer.text
        return {line["invariant"]: line["detail"] for line in answer.json()["invariants"] if not line["holds"]}


def withdrawn_minor(charge: dict[str, Any]) -> int:
    """What the sandbox has withdrawn of a charge for a dispute."""
    return int(charge["dispute"]["withdrawn_minor"]) if charge["dispute"] else 0


def succeeded_webhook(webhook_id: str, **charge: str) -> bytes:
    """A webhook of the sandbox about a charge that succeeded."""
    return json.dumps({"id": webhook_id, "type": "charge.succeeded", "data": {"charge": charge}}).encode()


def reference_of(shop: Shop, reservation_id: str, key: str) -> str:
    """The reference that an order of this reservation with this key has."""
    return order_reference(shop.settings.order_token_keys, reservation_id, key)


NAMES = {
    "Chinese": "周杰倫「嘉年華」世界巡迴演唱會",
    "Japanese": "東京フィルハーモニー交響楽団 ベートーヴェンの夕べ",
    "Korean": "방탄소년단 월드투어 서울",
    "Thai": "เทศกาลดนตรีฤดูหนาวที่เขาใหญ่",
    "Lao": "ບຸນປີໃໝ່ລາວ",
    "Hebrew": "פסטיבל הג׳אז בים האדום",
    "Arabic": "مهرجان القاهرة الدولي للموسيقى",
    "Persian": "جشنوارهٔ موسیقی پگاه گیلان",
    "Amharic": "የአዲስ አበባ የጃዝ ምሽት",
    "Armenian": "Երևանի ջազ փառատոն",
    "Georgian": "თბილისის ჯაზ ფესტივალი",
    "Russian": "Лебединое озеро",
    "Greek": "Μουσική βραδιά στην Αθήνα",
    "Vietnamese": "Đêm nhạc Trịnh Công Sơn",
    "Polish": "Zażółć gęślą jaźń",
    "mixed": "Sigur Rós × 坂本龍一 × 조수미 × Αθήνα",
}
WORD_OF_68 = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamten"


EVENTS = """
    SELECT e.event AS body FROM orders.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
    WHERE e.event ->> 'aggregate' = :aggregate ORDER BY b.id, e.n"""


async def provider_amounts(shop: Shop) -> dict[str, tuple[int, int]]:
    """Charged and refunded at the provider, by order."""
    sums: dict[str, tuple[int, int]] = {}
    for charge in await shop.charges():
        charged, refunded = sums.get(charge["reference"], (0, 0))
        sums[charge["reference"]] = charged + charge["captured_minor"], refunded + charge["refunded_minor"]
    return sums


async def check_reported_amounts(shop: Shop, *references: str) -> None:
    """Customers, streams, operators, exports and event consumers get the amounts that the provider has."""
    provider = await provider_amounts(shop)
    exported = {row["reference"]: row for row in csv_rows(await shop.admin_export())}
    charges = (await shop.admin_get(f"/events/{EVENT}/charges"))["charges"]
    for reference in references:
        expected, order = provider.get(reference, (0, 0)), await shop.row(reference)
        reports: dict[str, dict[str, Any]] = {
            "order": await shop.view(reference), "frame": order_frame(order).body, "export": exported[reference],
            "search": (await shop.admin_get(q=reference))["orders"][0],
        }  # fmt: skip
        if mine := [charge for charge in charges if charge["reference"] == reference]:
            reports["charges"] = {
                amount: sum(charge[amount] for charge in mine) for amount in ("charged_minor", "refunded_minor")
            }
        events = await events_of(shop, reference)
        refunds = [event["after"] for event in events if event["type"] == "order.refunded"]
        if refunds:
            reports["events"] = refunds[-1]
            assert sum(refund["amount_minor"] for refund in refunds) == expected[1], "each refund has one event"
        assert bool(refunds) or order.status != "refunded"
        reported = {name: (int(each["charged_minor"]), int(each["refunded_minor"])) for name, each in reports.items()}
        assert reported == dict.fromkeys(reports, expected)
        assert reports["order"]["refunding_minor"] == 0
        versions = [event["version"] for event in events]
        assert sorted(set(versions)) == versions, "each event has a version of its own, higher than the last"
        assert versions[-1] <= order.version


def summed(entries: list[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Sums by kind and order, of disputes what was withdrawn and did not come back."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for kind, reference, amount_minor in entries:
        back = kind == "reinstatement"
        sums["dispute" if back else kind, reference] += -amount_minor if back else amount_minor
    return {key: minor for key, minor in sums.items() if minor}


async def events_of(shop: Shop, reference: str) -> list[dict[str, Any]]:
    """The events of this order, oldest first."""
    return [row.body for row in await shop.query(EVENTS, aggregate=f"order:{reference}")]


async def settlement_amounts(shop: Shop) -> list[int]:
    """Charged and refunded in all, by the settlement."""
    today = datetime.now(UTC).date()
    days = {"from": str(today - timedelta(days=2)), "to": str(today + timedelta(days=1))}
    report = await shop.admin_get("/settlement", **days)
    require_types_sum_to_totals(report)
    return [sum(total[amount] for total in report["totals"]) for amount in ("charged_minor", "refunded_minor")]


SETTLED = ("charged_minor", "refunded_minor", "disputed_minor", "reinstated_minor", "net_minor")


def require_types_sum_to_totals(settlement: dict[str, Any]) -> None:
    """In each currency the rows by price type have all the money of the settlement, and no more."""
    sums = {part: Counter[tuple[str, str]]() for part in ("types", "totals")}
    for part, of_part in sums.items():
        for row in settlement[part]:
            of_part.update({(row["currency"], name): row[name] for name in SETTLED})
    assert sums["types"] == sums["totals"]


DROP = "drop"


@dataclass
class Mailbox:
    """`replies` are its replies to the next mails, one each (None accepts); then it accepts. `rejected` has its replies
    to recipients that it rejects. `smtputf8`: it takes addresses beyond ASCII. `received` are the mails it accepted of
    the `attempts` made, `recipients` those of the latest.
    """

    replies: list[str | None] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    received: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    attempts: int = 0
    pause: Callable[[], Any] | None = None
    port: int = 0
    smtputf8: bool = False

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.rejected:
            return self.rejected[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.attempts += 1
        self.recipients = envelope.rcpt_tos
        if self.pause is not None:
            await self.pause()
        reply = self.replies.pop(0) if self.replies else None
        if reply == DROP:
            _abort(server)
            return "421 gone"
        if reply is not None:
            return reply
        assert isinstance(envelope.content, bytes)
        self.received.append(message_from_bytes(envelope.content, policy=default))
        self.envelopes.append((envelope.mail_from or "", envelope.rcpt_tos))
        return "250 accepted"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Mailbox"]:
        """Listens on a free port, later on the same."""
        loop = asyncio.get_running_loop()
        connections: list[SMTP] = []

        def protocol() -> SMTP:
            connections.append(SMTP(self, hostname="mail.test", enable_SMTPUTF8=self.smtputf8, loop=loop))
            return connections[-1]

        server = await loop.create_server(protocol, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            for connection in connections:
                _abort(connection)


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.WriteTransport):
        server.transport.abort()


def mail_dispatcher(shop: Shop, url: str | None = None) -> MailDispatcher:
    state, settings = shop.state, shop.state.settings
    assert isinstance(settings, MailSettings)
    if url is None:
        assert settings.smtp_url is not None
        url = settings.smtp_url.get_secret_value()
    server = MailServer(server_of(url), "auto", timeout_s=5.0)
    return MailDispatcher(
        state.db, MailComposer(state.store, state.inventory, state.papers, settings, settings), server
    )


async def mail_rows(shop: Shop) -> dict[str, tuple[int, bool, bool, str]]:
    """By key: tries, whether sent, whether abandoned, and the error."""
    return {
        row.mail_key: (row.tries, row.sent_at is not None, row.abandoned_at is not None, row.error or "")
        for row in await shop.query(select(mail))
    }


async def send_due(shop: Shop) -> None:
    """Makes all unsent mail due and sends it."""
    await make_mail_due(shop)
    await mail_dispatcher(shop).run_once()


async def make_mail_due(shop: Shop) -> None:
    """Ends the pause before the next try."""
    await shop.run("UPDATE orders.mail SET due_at = now() WHERE sent_at IS NULL")
