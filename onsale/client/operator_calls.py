"""A method for each operation for operators. Generated from the OpenAPI document by `make api-documents`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from onsale.client.connection import new_key, segment
from onsale.client.endpoints import EndpointCalls

if TYPE_CHECKING:
    from shared.contracts import event_file, lottery
    from shared.contracts.admin import approvals, audit, console, inventory, order_reports, orders, prices, queue


class Operator(EndpointCalls):
    """The API for operators. Each method raises `Problem`. A `body` is a model of `shared.contracts.admin` or a mapping
    of its fields. A `key` makes repeated requests one request; one is made where it is needed and missing.
    """

    async def admit(
        self, event_id: str, body: "queue.AdmitRequest | Mapping[str, Any]", *, key: str | None = None
    ) -> "queue.AdmitResult":
        """Admit fans beyond the rate. Calls the next fans at once, in a paused room too; never beyond `max_active` or
        the stock. Fans who cannot be called now are not called later either. Requests with the same
        `Idempotency-Key` are one request for a day.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.ADMIT, body, key=key or new_key(), event_id=event_id)

    async def rebuild_room(self, event_id: str, body: "queue.ActionReason | Mapping[str, Any]") -> "queue.RoomView":
        """Rebuild Redis from the database. Places, order and passes stay; the rate ramps up again within 30 s."""
        from shared.contracts.admin import queue

        return await self.call(queue.REBUILD_ROOM, body, event_id=event_id)

    async def plan_capacity(self, event_id: str, body: "queue.PlanRequest | Mapping[str, Any]") -> "queue.CapacityPlan":
        """Preview a rate without setting it. When the present line would be drained and everything be sold, how many
        wait in vain, and what limits it.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.PLAN_CAPACITY, body, event_id=event_id)

    async def set_message(self, event_id: str, body: "queue.QueueMessage | Mapping[str, Any]") -> "queue.RoomView":
        """Set the queue message."""
        from shared.contracts.admin import queue

        return await self.call(queue.SET_MESSAGE, body, event_id=event_id)

    async def reset_room(self, event_id: str, body: "queue.ActionReason | Mapping[str, Any]") -> "queue.RoomView":
        """Reset the queue. Starts a new line: places, tokens and passes of the old line are invalid. Fans who hold
        tickets may still pay.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.RESET_ROOM, body, event_id=event_id)

    async def change_gate(self, event_id: str, body: "queue.GateChange | Mapping[str, Any]") -> "queue.RoomView":
        """Change the rules of forward-auth. The rules say to which sites visitors and their passes go."""
        from shared.contracts.admin import queue

        return await self.call(queue.CHANGE_GATE, body, event_id=event_id)

    async def set_room_state(
        self, event_id: str, action: str, body: "queue.ActionReason | Mapping[str, Any]"
    ) -> "queue.RoomView":
        """Open, pause, resume, drain or close the room. While a room drains nobody new may join, and the fans in line
        are still called.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.SET_ROOM_STATE, body, event_id=event_id, action=action)

    async def draw_lottery(
        self, event_id: str, body: "queue.DrawRequest | Mapping[str, Any]"
    ) -> "lottery.PublishedLottery":
        """Draw the lottery with the public value. Once entry has closed and the value is known: reveals the seed and
        ranks all entrants. There is one draw.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.DRAW_LOTTERY, body, event_id=event_id)

    async def read_queue_event(self, event_id: str) -> "event_file.RoomPart":
        """Get the queue's part of the event file. As it stands now: applying it changes nothing."""
        from shared.contracts.admin import queue

        return await self.call(queue.READ_EVENT, event_id=event_id)

    async def apply_queue_event(
        self,
        event_id: str,
        body: "event_file.EventFile | Mapping[str, Any]",
        *,
        dry_run: bool | None = None,
        reason: str | None = None,
    ) -> "queue.RoomDryRun | queue.RoomView":
        """Apply an event file. Creates the room as a draft, or changes its configuration to the file's. Applying the
        same file again changes nothing. With `dry_run` everything is checked and nothing is changed. Where
        `change_gate` needs a second person, a room's `gate.waiting_room` and `return_to` stay as they are.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.APPLY_EVENT, body, query={"dry_run": dry_run, "reason": reason}, event_id=event_id)

    async def read_room(self, event_id: str) -> "queue.RoomView":
        """Get the waiting room."""
        from shared.contracts.admin import queue

        return await self.call(queue.READ_ROOM, event_id=event_id)

    async def change_room(self, event_id: str, body: "queue.RoomPatch | Mapping[str, Any]") -> "queue.RoomView":
        """Change the room's configuration. Takes effect with the next tick. With `If-Match`, only if nobody changed the
        room since you read it. Who changes `gate.waiting_room` or `gate.return_to` must be an admin; where that
        needs a second person, `POST …/room/gate` does it.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.CHANGE_ROOM, body, event_id=event_id)

    async def list_queue_changes(
        self, event_id: str, *, before: int | None = None, page_size: int | None = None
    ) -> "audit.AuditPage":
        """List audit log entries. Newest first."""
        from shared.contracts.admin import queue

        return await self.call(queue.LIST_CHANGES, query={"before": before, "page_size": page_size}, event_id=event_id)

    async def check_queue_invariants(self, event_id: str) -> "queue.QueueInvariantReport":
        """Check the invariants of the queue."""
        from shared.contracts.admin import queue

        return await self.call(queue.CHECK_INVARIANTS, event_id=event_id)

    async def read_queue_flow(self, event_id: str) -> "queue.LineFlow":
        """Get the flow of fans through the line. Counted in the database since the last reset, at most once a second
        for all who ask.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.READ_FLOW, event_id=event_id)

    async def read_queue_flow_history(
        self, event_id: str, *, since: str, step_s: int, steps: int | None = None
    ) -> "queue.LineHistory":
        """Get joins, calls and waits by time."""
        from shared.contracts.admin import queue

        return await self.call(
            queue.READ_FLOW_HISTORY, query={"from": since, "step_s": step_s, "steps": steps}, event_id=event_id
        )

    async def list_access_codes(
        self, event_id: str, *, lane: int | None = None, before: str | None = None, page_size: int | None = None
    ) -> "queue.AccessCodePage":
        """List access codes. Newest first."""
        from shared.contracts.admin import queue

        return await self.call(
            queue.LIST_ACCESS_CODES, query={"lane": lane, "before": before, "page_size": page_size}, event_id=event_id
        )

    async def create_access_codes(
        self, event_id: str, body: "queue.CreateAccessCodes | Mapping[str, Any]"
    ) -> "queue.CreatedAccessCodes":
        """Create access codes. The codes are shown only in this answer."""
        from shared.contracts.admin import queue

        return await self.call(queue.CREATE_ACCESS_CODES, body, event_id=event_id)

    async def revoke_access_codes(
        self, event_id: str, body: "queue.RevokeAccessCodes | Mapping[str, Any]"
    ) -> "queue.RevokedAccessCodes":
        """Revoke access codes. Answers how many were valid until now; unknown and already revoked codes are not
        counted.
        """
        from shared.contracts.admin import queue

        return await self.call(queue.REVOKE_ACCESS_CODES, body, event_id=event_id)

    async def read_inventory_event(self, event_id: str) -> "event_file.StockPart":
        """Get inventory's part of the event file. As it stands now: applying it changes nothing. Allotments that are
        open are left out, as their places are on sale.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.READ_EVENT, event_id=event_id)

    async def apply_inventory_event(
        self,
        event_id: str,
        body: "event_file.EventFile | Mapping[str, Any]",
        *,
        dry_run: bool | None = None,
        reason: str | None = None,
    ) -> "inventory.EventApplied":
        """Apply an event file. Applying the same file again changes nothing. With `dry_run` everything is checked and
        nothing is changed.
        """
        from shared.contracts.admin import inventory

        return await self.call(
            inventory.APPLY_EVENT, body, query={"dry_run": dry_run, "reason": reason}, event_id=event_id
        )

    async def release_all_holds(
        self, event_id: str, body: "inventory.HoldsRelease | Mapping[str, Any]"
    ) -> "inventory.HoldsReleased":
        """Release every hold that is not being paid."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.RELEASE_ALL_HOLDS, body, event_id=event_id)

    async def release_hold(
        self, reservation_id: str, body: "inventory.HoldsRelease | Mapping[str, Any]"
    ) -> "inventory.ReservationReleased":
        """Release a hold."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.RELEASE_HOLD, body, reservation_id=reservation_id)

    async def read_hold_times(self, event_id: str) -> "inventory.HoldTimesReport":
        """Get hold times. Percentiles, returning holders, a suggested `hold_ttl_s`, and conversion by variant, from the
        database.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.READ_HOLD_TIMES, event_id=event_id)

    async def check_inventory_invariants(self, event_id: str) -> "inventory.StockInvariants":
        """Check the invariants of an event's stock."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.CHECK_INVARIANTS, event_id=event_id)

    async def read_inventory_flow(self, event_id: str) -> "inventory.HoldsFlow":
        """Get the flow of fans through holds. Counted in the database, at most once a second for all who ask."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.READ_FLOW, event_id=event_id)

    async def read_inventory_flow_history(
        self, event_id: str, *, since: str, step_s: int, steps: int | None = None
    ) -> "inventory.HoldsHistory":
        """Get holds by time, and why places were released."""
        from shared.contracts.admin import inventory

        return await self.call(
            inventory.READ_FLOW_HISTORY, query={"from": since, "step_s": step_s, "steps": steps}, event_id=event_id
        )

    async def list_drift(self, event_id: str) -> "inventory.ReconcileReport":
        """List drift and oversells. `watched` is what this process sees and has not acted on; the rest is the same in
        every process.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.LIST_DRIFT, event_id=event_id)

    async def reconcile(
        self, event_id: str, body: "inventory.ReconcileRequest | Mapping[str, Any]"
    ) -> "inventory.ReconcilePass":
        """Reconcile Redis and the database. One pass. It corrects differences that an earlier pass, at least five
        seconds ago, saw unchanged.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.RECONCILE, body, event_id=event_id)

    async def approve_oversell(
        self, event_id: str, body: "inventory.OversellApproval | Mapping[str, Any]"
    ) -> "inventory.OversellApproved":
        """Cancel the latest buyers of an oversell. Decides every waiting oversell of this event: those who bought last
        lose their tickets and are refunded in full.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.APPROVE_OVERSELL, body, event_id=event_id)

    async def block_places(
        self, event_id: str, body: "inventory.PlacesChange | Mapping[str, Any]"
    ) -> "inventory.StockChanged":
        """Block seats and GA places. All or none: if some are held or sold, the problem names them and nothing is
        changed.
        """
        from shared.contracts.admin import inventory

        return await self.call(inventory.BLOCK_PLACES, body, event_id=event_id)

    async def unblock_places(
        self, event_id: str, body: "inventory.PlacesChange | Mapping[str, Any]"
    ) -> "inventory.StockChanged":
        """Unblock seats and GA places."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.UNBLOCK_PLACES, body, event_id=event_id)

    async def resize_section(
        self, event_id: str, section_id: str, body: "inventory.CapacityChange | Mapping[str, Any]"
    ) -> "inventory.StockChanged":
        """Change the capacity of a GA section. Refused below what is held, sold and blocked."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.RESIZE_SECTION, body, event_id=event_id, section_id=section_id)

    async def put_allotment(
        self, event_id: str, allotment_id: str, body: "inventory.AllotmentChange | Mapping[str, Any]"
    ) -> "inventory.StockChanged":
        """Create or change an allotment. Idempotent. The places of an open allotment cannot be changed."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.PUT_ALLOTMENT, body, event_id=event_id, allotment_id=allotment_id)

    async def open_allotment(
        self, event_id: str, allotment_id: str, body: "inventory.ChangeReason | Mapping[str, Any]"
    ) -> "inventory.StockChanged":
        """Open an allotment. Puts its places on sale, once; opening an open allotment changes nothing."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.OPEN_ALLOTMENT, body, event_id=event_id, allotment_id=allotment_id)

    async def read_stock(self, event_id: str) -> "inventory.StockReport":
        """Get the stock report."""
        from shared.contracts.admin import inventory

        return await self.call(inventory.READ_STOCK, event_id=event_id)

    async def list_inventory_changes(
        self, event_id: str, *, before: int | None = None, page_size: int | None = None
    ) -> "audit.AuditPage":
        """List audit log entries. Newest first."""
        from shared.contracts.admin import inventory

        return await self.call(
            inventory.LIST_CHANGES, query={"before": before, "page_size": page_size}, event_id=event_id
        )

    async def export_stock_csv(self, event_id: str, what: str) -> bytes:
        """Export seats or sales as CSV."""
        return await self.content(
            "export_stock_csv", "GET", f"/admin/inventory/events/{segment(event_id)}/{segment(what)}.csv"
        )

    async def search_orders(
        self,
        *,
        event_id: str | None = None,
        status: str | None = None,
        q: str | None = None,
        since: str | None = None,
        until: str | None = None,
        mail_failed: bool | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> "orders.OrderPage":
        """Search orders. Newest first. `q` matches names in part; references, e-mail addresses, seats and charges
        exactly. `mail_failed` finds those whose buyer could not be mailed.
        """
        from shared.contracts.admin import orders

        return await self.call(
            orders.SEARCH_ORDERS,
            query={"event_id": event_id, "status": status, "q": q, "since": since, "until": until, "mail_failed": mail_failed, "before": before, "page_size": page_size},
        )

    async def list_commands(
        self,
        *,
        status: Literal["pending", "processing", "completed", "failed"] | None = None,
        reference: str | None = None,
        event_id: str | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> "orders.CommandPage":
        """List commands. Newest first."""
        from shared.contracts.admin import orders

        return await self.call(
            orders.LIST_COMMANDS,
            query={"status": status, "reference": reference, "event_id": event_id, "before": before, "page_size": page_size},
        )

    async def replay_command(self, command_id: str, body: "orders.Reason | Mapping[str, Any]") -> "orders.Command":
        """Replay a command."""
        from shared.contracts.admin import orders

        return await self.call(orders.REPLAY_COMMAND, body, command_id=command_id)

    async def read_background_share(self, event_id: str) -> "orders.BackgroundShareAnswer":
        """Get the share of checkouts processed in the background."""
        from shared.contracts.admin import orders

        return await self.call(orders.READ_BACKGROUND_SHARE, event_id=event_id)

    async def set_background_share(
        self, event_id: str, body: "orders.BackgroundShareRequest | Mapping[str, Any]"
    ) -> "orders.BackgroundShareChanged":
        """Change the share of checkouts processed in the background."""
        from shared.contracts.admin import orders

        return await self.call(orders.SET_BACKGROUND_SHARE, body, event_id=event_id)

    async def list_audit_log(
        self, *, subject: str | None = None, before: int | None = None, page_size: int | None = None
    ) -> "audit.AuditPage":
        """List audit log entries. Newest first, of one subject or of all."""
        from shared.contracts.admin import orders

        return await self.call(
            orders.LIST_AUDIT_LOG, query={"subject": subject, "before": before, "page_size": page_size}
        )

    async def list_charges(
        self, event_id: str, *, after: int | None = None, page_size: int | None = None
    ) -> "order_reports.ChargePage":
        """Export charges and refunds, oldest first."""
        from shared.contracts.admin import order_reports

        return await self.call(
            order_reports.LIST_CHARGES, query={"after": after, "page_size": page_size}, event_id=event_id
        )

    async def read_settlement(
        self, *, since: str, until: str, tz: str | None = None, compare: bool | None = None
    ) -> "order_reports.Settlement":
        """Show settlement by provider and day. Days begin and end in the time zone `tz`, and both are included.
        `compare` reads the providers' own lists.
        """
        from shared.contracts.admin import order_reports

        return await self.call(
            order_reports.READ_SETTLEMENT, query={"from": since, "to": until, "tz": tz, "compare": compare}
        )

    async def check_orders_invariants(self, event_id: str) -> "orders.InvariantReport":
        """Check the invariants of orders and money."""
        from shared.contracts.admin import orders

        return await self.call(orders.CHECK_INVARIANTS, event_id=event_id)

    async def export_orders_csv(self, *, event_id: str) -> bytes:
        """Export an event's orders as CSV."""
        return await self.content("export_orders_csv", "GET", "/admin/orders/export.csv", query={"event_id": event_id})

    async def list_scanner_tickets(
        self, event_id: str, *, status: Literal["valid", "void"] | None = None
    ) -> "order_reports.ScannerTickets":
        """Export the tickets of an event for scanners. It has the secrets of rotating codes: keep it on scanners only.
        """
        from shared.contracts.admin import order_reports

        return await self.call(order_reports.LIST_SCANNER_TICKETS, query={"status": status}, event_id=event_id)

    async def export_tickets_csv(self, event_id: str, *, status: Literal["valid", "void"] | None = None) -> bytes:
        """Export the tickets of an event as CSV."""
        return await self.content(
            "export_tickets_csv",
            "GET",
            f"/admin/orders/events/{segment(event_id)}/tickets.csv",
            query={"status": status},
        )

    async def read_order_flow(self, event_id: str) -> "order_reports.OrdersFlow":
        """Get the flow of fans through orders. Counted in the database, at most once a second for all who ask."""
        from shared.contracts.admin import order_reports

        return await self.call(order_reports.READ_FLOW, event_id=event_id)

    async def read_order_flow_history(
        self, event_id: str, *, since: str, step_s: int, steps: int | None = None
    ) -> "order_reports.OrdersHistory":
        """Get orders by time, tickets by section and money."""
        from shared.contracts.admin import order_reports

        return await self.call(
            order_reports.READ_FLOW_HISTORY, query={"from": since, "step_s": step_s, "steps": steps}, event_id=event_id
        )

    async def read_timeline(self, reference: str) -> "orders.Timeline":
        """Get the timeline of an order."""
        from shared.contracts.admin import orders

        return await self.call(orders.READ_TIMELINE, reference=reference)

    async def refund_order(
        self, reference: str, body: "orders.RefundBody | Mapping[str, Any]", *, key: str | None = None
    ) -> "orders.AdminOrder":
        """Refund an order. Needs an `Idempotency-Key` for an amount or for some tickets; all that is left is refunded
        once.
        """
        from shared.contracts.admin import orders

        return await self.call(orders.REFUND_ORDER, body, key=key or new_key(), reference=reference)

    async def cancel_order(self, reference: str, body: "orders.Reason | Mapping[str, Any]") -> "orders.AdminOrder":
        """Cancel an order that is not paid."""
        from shared.contracts.admin import orders

        return await self.call(orders.CANCEL_ORDER, body, reference=reference)

    async def retry_order(self, reference: str, body: "orders.Reason | Mapping[str, Any]") -> "orders.AdminOrder":
        """Retry an order now."""
        from shared.contracts.admin import orders

        return await self.call(orders.RETRY_ORDER, body, reference=reference)

    async def resolve_order(
        self, reference: str, body: "orders.ResolveRequest | Mapping[str, Any]"
    ) -> "orders.AdminOrder":
        """Resolve an order in review."""
        from shared.contracts.admin import orders

        return await self.call(orders.RESOLVE_ORDER, body, reference=reference)

    async def read_event_refund(self, event_id: str) -> "orders.EventRefundProgress":
        """Get the progress of an event refund."""
        from shared.contracts.admin import orders

        return await self.call(orders.READ_EVENT_REFUND, event_id=event_id)

    async def start_event_refund(
        self, event_id: str, body: "orders.EventRefundRequest | Mapping[str, Any]"
    ) -> "orders.EventRefundProgress":
        """Refund an event. Requested again while it runs, it only answers its progress."""
        from shared.contracts.admin import orders

        return await self.call(orders.START_EVENT_REFUND, body, event_id=event_id)

    async def pause_event_refund(
        self, event_id: str, body: "orders.Reason | Mapping[str, Any]"
    ) -> "orders.EventRefundProgress":
        """Pause the event refund."""
        from shared.contracts.admin import orders

        return await self.call(orders.PAUSE_EVENT_REFUND, body, event_id=event_id)

    async def resume_event_refund(
        self, event_id: str, body: "orders.EventRefundResume | Mapping[str, Any]"
    ) -> "orders.EventRefundProgress":
        """Resume the event refund."""
        from shared.contracts.admin import orders

        return await self.call(orders.RESUME_EVENT_REFUND, body, event_id=event_id)

    async def read_prices_event(self, event_id: str) -> "event_file.PricePart":
        """Get orders' part of the event file. As it stands now: applying it changes nothing."""
        from shared.contracts.admin import prices

        return await self.call(prices.READ_EVENT, event_id=event_id)

    async def apply_prices_event(
        self,
        event_id: str,
        body: "event_file.EventFile | Mapping[str, Any]",
        *,
        dry_run: bool | None = None,
        reason: str | None = None,
    ) -> "prices.EventFileApplied":
        """Apply an event file. It holds for orders from now on; an order keeps the price it was placed at. With
        `dry_run` everything is checked and nothing is changed.
        """
        from shared.contracts.admin import prices

        return await self.call(
            prices.APPLY_EVENT, body, query={"dry_run": dry_run, "reason": reason}, event_id=event_id
        )

    async def check_amounts(self, event_id: str, *, each: list[int] | None = None) -> "prices.AmountsChecked":
        """Check which amounts cannot be charged. Looks at the event's fees and promo codes, and at a ticket of each of
        these prices with all fees and taxes.
        """
        from shared.contracts.admin import prices

        return await self.call(prices.CHECK_AMOUNTS, query={"each": each}, event_id=event_id)

    async def list_webhook_endpoints(self) -> "orders.WebhookEndpoints":
        """List webhook endpoints."""
        from shared.contracts.admin import orders

        return await self.call(orders.LIST_WEBHOOK_ENDPOINTS)

    async def create_webhook_endpoint(
        self, body: "orders.NewWebhookEndpoint | Mapping[str, Any]"
    ) -> "orders.CreatedWebhookEndpoint":
        """Create a webhook endpoint. The URL must be https and lead to a public address. The response has the signing
        secret, which is shown once.
        """
        from shared.contracts.admin import orders

        return await self.call(orders.CREATE_WEBHOOK_ENDPOINT, body)

    async def delete_webhook_endpoint(self, endpoint_id: str, *, reason: str) -> None:
        """Delete a webhook endpoint."""
        from shared.contracts.admin import orders

        await self.call(orders.DELETE_WEBHOOK_ENDPOINT, query={"reason": reason}, endpoint_id=endpoint_id)

    async def enable_webhook_endpoint(
        self, endpoint_id: str, body: "orders.Reason | Mapping[str, Any]"
    ) -> "orders.WebhookEndpoint":
        """Enable a webhook endpoint."""
        from shared.contracts.admin import orders

        return await self.call(orders.ENABLE_WEBHOOK_ENDPOINT, body, endpoint_id=endpoint_id)

    async def list_webhook_deliveries(
        self,
        endpoint_id: str,
        *,
        status: Literal["pending", "delivered", "failed"] | None = None,
        before: int | None = None,
        page_size: int | None = None,
    ) -> "orders.WebhookDeliveryPage":
        """List webhook deliveries of an endpoint. Newest first."""
        from shared.contracts.admin import orders

        return await self.call(
            orders.LIST_WEBHOOK_DELIVERIES,
            query={"status": status, "before": before, "page_size": page_size},
            endpoint_id=endpoint_id,
        )

    async def resend_webhook(
        self, delivery_id: str, body: "orders.Reason | Mapping[str, Any]"
    ) -> "orders.WebhookDelivery":
        """Send a webhook again."""
        from shared.contracts.admin import orders

        return await self.call(orders.RESEND_WEBHOOK, body, delivery_id=delivery_id)

    async def read_promo_code(self, event_id: str, code: str) -> "prices.PromoCodeAnswer":
        """Get a promo code."""
        from shared.contracts.admin import prices

        return await self.call(prices.READ_PROMO_CODE, event_id=event_id, code=code)

    async def put_promo_code(
        self, event_id: str, code: str, body: "prices.PromoCodeRequest | Mapping[str, Any]"
    ) -> "prices.PromoCodeChanged":
        """Create or replace a promo code. A deactivated code is active again."""
        from shared.contracts.admin import prices

        return await self.call(prices.PUT_PROMO_CODE, body, event_id=event_id, code=code)

    async def deactivate_promo_code(
        self, event_id: str, code: str, *, reason: str | None = None
    ) -> "prices.PromoCodeChanged":
        """Deactivate a promo code. It takes nothing off any more. It stays in the list, and so do its uses."""
        from shared.contracts.admin import prices

        return await self.call(prices.DEACTIVATE_PROMO_CODE, query={"reason": reason}, event_id=event_id, code=code)

    async def list_promo_codes(
        self, event_id: str, *, after: str | None = None, page_size: int | None = None
    ) -> "prices.PromoCodePage":
        """List promo codes and their uses. In alphabetical order."""
        from shared.contracts.admin import prices

        return await self.call(
            prices.LIST_PROMO_CODES, query={"after": after, "page_size": page_size}, event_id=event_id
        )

    async def list_promo_code_uses(
        self, event_id: str, code: str, *, before: str | None = None, page_size: int | None = None
    ) -> "prices.PromoCodeUsePage":
        """List orders that used a promo code, newest first."""
        from shared.contracts.admin import prices

        return await self.call(
            prices.LIST_PROMO_CODE_USES, query={"before": before, "page_size": page_size}, event_id=event_id, code=code
        )

    async def list_price_changes(
        self, event_id: str, *, before: int | None = None, page_size: int | None = None
    ) -> "audit.AuditPage":
        """List changes of prices and promo codes, newest first."""
        from shared.contracts.admin import prices

        return await self.call(
            prices.LIST_PRICE_CHANGES, query={"before": before, "page_size": page_size}, event_id=event_id
        )

    async def list_events(self) -> "console.EventList":
        """List the events."""
        from shared.contracts.admin import console

        return await self.call(console.LIST_EVENTS)

    async def read_fan_view(self, event_id: str, *, position: int, lane: int | None = None) -> "console.FanView":
        """See what a fan at a position is told."""
        from shared.contracts.admin import console

        return await self.call(console.READ_FAN_VIEW, query={"position": position, "lane": lane}, event_id=event_id)

    async def read_history(
        self, event_id: str, *, from_ms: int | None = None, to_ms: int | None = None, step_s: int | None = None
    ) -> "console.VitalsHistory":
        """Get the figures of the past. The last hour a second as far as it was watched, what was before in steps of ten
        seconds; at most 4,000 points, by default of the last hour. A longer step is taken if that would be more.
        """
        from shared.contracts.admin import console

        return await self.call(
            console.READ_HISTORY, query={"from_ms": from_ms, "to_ms": to_ms, "step_s": step_s}, event_id=event_id
        )

    async def read_rehearsal(self, event_id: str) -> "console.RehearsalView":
        """Get the last rehearsal of an event. The same from every console, whichever runs it."""
        from shared.contracts.admin import console

        return await self.call(console.READ_REHEARSAL, event_id=event_id)

    async def start_rehearsal(
        self, event_id: str, body: "console.RehearsalStart | Mapping[str, Any]"
    ) -> "console.RehearsalView":
        """Start a rehearsal of an event. Sells a copy of the event to simulated fans. Refused with 409 while one runs,
        or if anything but the sandbox takes payments.
        """
        from shared.contracts.admin import console

        return await self.call(console.START_REHEARSAL, body, event_id=event_id)

    async def remove_rehearsal(self, event_id: str) -> None:
        """Stop and remove the rehearsal of an event. Stops it if it runs, closes its copy, and forgets its result. What
        was sold there stays in the tables, as of every closed event.
        """
        from shared.contracts.admin import console

        await self.call(console.REMOVE_REHEARSAL, event_id=event_id)

    async def export_report(self, event_id: str, *, download: bool | None = None) -> bytes:
        """Get the report of a sale. One page without scripts; it names no fan. `download`: as a file."""
        return await self.content(
            "export_report", "GET", f"/console/api/events/{segment(event_id)}/report", query={"download": download}
        )

    async def list_approvals(self, event_id: str) -> "approvals.ApprovalList":
        """List what waits for a second person. An approval itself is told to the operator who asked for it, and to
        nobody else.
        """
        from shared.contracts.admin import approvals

        return await self.call(approvals.LIST_APPROVALS, event_id=event_id)

    async def request_approval(
        self, event_id: str, body: "approvals.NewApproval | Mapping[str, Any]"
    ) -> "approvals.ApprovalView":
        """Ask a second person. For ten minutes; at most 20 may wait for one event."""
        from shared.contracts.admin import approvals

        return await self.call(approvals.REQUEST_APPROVAL, body, event_id=event_id)

    async def decide_approval(self, event_id: str, approval_id: str, decision: str) -> "approvals.ApprovalView":
        """Approve or refuse what another operator asks for. Needs the control's role. An approval is good for ten
        minutes, for exactly this request of its requester.
        """
        from shared.contracts.admin import approvals

        return await self.call(approvals.DECIDE_APPROVAL, event_id=event_id, approval_id=approval_id, decision=decision)

    async def withdraw_approval(self, event_id: str, approval_id: str) -> None:
        """Withdraw what you asked a second person for. Also puts away what is done or was refused. An approval that you
        have received stays good until it expires.
        """
        from shared.contracts.admin import approvals

        await self.call(approvals.WITHDRAW_APPROVAL, event_id=event_id, approval_id=approval_id)
