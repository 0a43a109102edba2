"""A method for each operation for fans and shops. Generated from the OpenAPI document by `make api-documents`."""

from collections.abc import AsyncGenerator

from onsale.client.connection import Connection, Update, new_key, segment
from onsale.client.fan_documents import (
    ChallengeAnswer,
    EmailChange,
    EntryProof,
    EventDetails,
    EventPage,
    HallGeometry,
    HandoverBody,
    JoinBody,
    JoinedAnswer,
    KeepBody,
    LineAnswer,
    LinksRequest,
    NewOrder,
    NewPayment,
    OrderAccepted,
    OrderView,
    OrdersPage,
    PassAnswer,
    PricesAnswer,
    ProblemCatalogue,
    ProvidersAnswer,
    PublicKeys,
    PublishedLottery,
    QuoteAnswer,
    QuoteRequest,
    ReminderAnswer,
    ReminderRequest,
    ReservationView,
    ReserveBody,
    ReturnLink,
    SeatPage,
    SectionList,
    SlotReleased,
    StatusAnswer,
    TicketsAnswer,
)


class Client(Connection):
    """The API for fans and shops. Each method raises `Problem`. `token` is the credential that the operation needs: a
    queue token, a pass, an order's token or a user's JWT; without one, the client's own. A `key` is made for each
    request that takes one, and kept across its retries.
    """

    async def hand_over(self, event_id: str, body: HandoverBody, *, token: str | None = None) -> ReturnLink:
        """Create a one-time return link. Returns a fan with a pass to the protected site. The link carries a code that
        works once, for `good_for_s` seconds, in the browser that the site sent here.
        """
        answer: ReturnLink = await self.document(
            "hand_over", "POST", f"/events/{segment(event_id)}/queue/handover", body=body, token=token
        )
        return answer

    async def release_pass(self, *, event: str, token: str | None = None) -> SlotReleased:
        """Release the slot of a pass. Ends the session of the pass that is sent: the pass stops working before its slot
        is free. Releasing twice is releasing once; `admitted` means that a reservation keeps the session.
        """
        answer: SlotReleased = await self.document(
            "release_pass", "POST", "/gate/release", query={"event": event}, token=token
        )
        return answer

    async def pass_keys(self, *, token: str | None = None) -> PublicKeys:
        """List public keys of passes. The JWK set that verifies passes; during a rotation it holds the old key and the
        new one.
        """
        answer: PublicKeys = await self.document("pass_keys", "GET", "/.well-known/jwks.json", token=token)
        return answer

    async def ticket_keys(self, *, token: str | None = None) -> PublicKeys:
        """List public keys of tickets. The JWK set that verifies tickets. Scanners load it before the doors open and
        then work offline.
        """
        answer: PublicKeys = await self.document("ticket_keys", "GET", "/.well-known/ticket-keys.json", token=token)
        return answer

    async def lottery(self, event_id: str, *, token: str | None = None) -> PublishedLottery:
        """Get the lottery of the pre-queue. Commitment and rules from the beginning; number and hash of the entrants
        once entry has closed; public value and seed once it is drawn.
        """
        answer: PublishedLottery = await self.document(
            "lottery", "GET", f"/events/{segment(event_id)}/queue/lottery", token=token
        )
        return answer

    async def lottery_proof(self, event_id: str, *, token: str | None = None) -> EntryProof:
        """Get my lottery entry. The proof that the place of this queue token was among the entrants when entry closed.
        """
        answer: EntryProof = await self.document(
            "lottery_proof", "GET", f"/events/{segment(event_id)}/queue/lottery/proof", token=token
        )
        return answer

    async def preview(
        self, event_id: str, *, position: int, lane: int | None = None, token: str | None = None
    ) -> StatusAnswer:
        """See what a fan at a position is told. The status of a place there, as its fan gets it who joined now: the
        position, the wait as a range and its reason. Nobody needs to be there, and it is no heartbeat.
        """
        answer: StatusAnswer = await self.document(
            "preview",
            "GET",
            f"/events/{segment(event_id)}/queue/preview",
            query={"position": position, "lane": lane},
            token=token,
        )
        return answer

    async def problems(self, *, token: str | None = None) -> ProblemCatalogue:
        """List every problem. Every `type` that a problem document may have; HTML for browsers, else JSON."""
        answer: ProblemCatalogue = await self.document("problems", "GET", "/problems", token=token)
        return answer

    async def status(self, event_id: str, *, token: str | None = None) -> StatusAnswer:
        """Get the status of a place."""
        answer: StatusAnswer = await self.document(
            "status", "GET", f"/events/{segment(event_id)}/queue/status", token=token
        )
        return answer

    async def line(self, event_id: str, *, token: str | None = None) -> LineAnswer:
        """Get the public state of the waiting room."""
        answer: LineAnswer = await self.document("line", "GET", f"/events/{segment(event_id)}/queue", token=token)
        return answer

    async def join(
        self,
        event_id: str,
        body: JoinBody | None = None,
        *,
        onsale_proof_of_work: str | None = None,
        key: str | None = None,
        token: str | None = None,
    ) -> JoinedAnswer:
        """Join the line."""
        answer: JoinedAnswer = await self.document(
            "join",
            "POST",
            f"/events/{segment(event_id)}/queue",
            body=body,
            headers={"onsale-proof-of-work": onsale_proof_of_work, "idempotency-key": key or new_key()},
            token=token,
        )
        return answer

    async def leave(self, event_id: str, *, token: str | None = None) -> None:
        """Leave the line."""
        await self.document("leave", "DELETE", f"/events/{segment(event_id)}/queue", token=token)

    async def challenge(self, event_id: str, *, key: str | None = None, token: str | None = None) -> ChallengeAnswer:
        """Get a proof-of-work challenge."""
        answer: ChallengeAnswer = await self.document(
            "challenge",
            "GET",
            f"/events/{segment(event_id)}/queue/challenge",
            headers={"idempotency-key": key or new_key()},
            token=token,
        )
        return answer

    async def claim(self, event_id: str, *, token: str | None = None) -> PassAnswer:
        """Claim the pass."""
        answer: PassAnswer = await self.document(
            "claim", "POST", f"/events/{segment(event_id)}/queue/pass", token=token
        )
        return answer

    async def extend_pass(self, event_id: str, *, token: str | None = None) -> PassAnswer:
        """Get more time to choose, once."""
        answer: PassAnswer = await self.document(
            "extend_pass", "POST", f"/events/{segment(event_id)}/queue/pass/extend", token=token
        )
        return answer

    async def events(
        self, *, after: str | None = None, page_size: int | None = None, token: str | None = None
    ) -> EventPage:
        """List events on sale. Rehearsals are not listed."""
        answer: EventPage = await self.document(
            "events", "GET", "/events", query={"after": after, "page_size": page_size}, token=token
        )
        return answer

    async def event(self, event_id: str, *, token: str | None = None) -> EventDetails:
        """Get an event."""
        answer: EventDetails = await self.document("event", "GET", f"/events/{segment(event_id)}", token=token)
        return answer

    async def sections(self, event_id: str, *, token: str | None = None) -> SectionList:
        """List availability by section."""
        answer: SectionList = await self.document(
            "sections", "GET", f"/events/{segment(event_id)}/sections", token=token
        )
        return answer

    async def map(self, event_id: str, *, v: str | None = None, token: str | None = None) -> HallGeometry:
        """Get the map of the hall."""
        answer: HallGeometry = await self.document(
            "map", "GET", f"/events/{segment(event_id)}/map", query={"v": v}, token=token
        )
        return answer

    async def map_state(self, event_id: str, *, sections: str | None = None, token: str | None = None) -> bytes:
        """Get the states of all seats. `OSS1`, then epoch (4 bytes), version (8) and number of seats (4), big-endian,
        then two bits a seat in map order, four seats a byte, the first in its lowest bits: 0 free, 1 held, 2 sold, 3
        not for sale.
        """
        answer: bytes = await self.content(
            "map_state", "GET", f"/events/{segment(event_id)}/map/state", query={"sections": sections}, token=token
        )
        return answer

    async def seats(
        self,
        event_id: str,
        section_id: str,
        *,
        page: int | None = None,
        page_size: int | None = None,
        token: str | None = None,
    ) -> SeatPage:
        """List the seats of a section."""
        answer: SeatPage = await self.document(
            "seats",
            "GET",
            f"/events/{segment(event_id)}/sections/{segment(section_id)}/seats",
            query={"page": page, "page_size": page_size},
            token=token,
        )
        return answer

    async def reservation(self, event_id: str, reservation_id: str, *, token: str | None = None) -> ReservationView:
        """Get a reservation."""
        answer: ReservationView = await self.document(
            "reservation", "GET", f"/events/{segment(event_id)}/reservations/{segment(reservation_id)}", token=token
        )
        return answer

    async def release(self, event_id: str, reservation_id: str, *, token: str | None = None) -> None:
        """Release a reservation."""
        await self.document(
            "release", "DELETE", f"/events/{segment(event_id)}/reservations/{segment(reservation_id)}", token=token
        )

    async def extend(self, event_id: str, reservation_id: str, *, token: str | None = None) -> ReservationView:
        """Extend a reservation once."""
        answer: ReservationView = await self.document(
            "extend", "POST", f"/events/{segment(event_id)}/reservations/{segment(reservation_id)}/extend", token=token
        )
        return answer

    async def keep(
        self, event_id: str, reservation_id: str, body: KeepBody, *, token: str | None = None
    ) -> ReservationView:
        """Release a part of a reservation. Keeps the named places and releases all others. Repeating it changes
        nothing.
        """
        answer: ReservationView = await self.document(
            "keep",
            "POST",
            f"/events/{segment(event_id)}/reservations/{segment(reservation_id)}/keep",
            body=body,
            token=token,
        )
        return answer

    async def hold(
        self, event_id: str, body: ReserveBody, *, key: str | None = None, token: str | None = None
    ) -> ReservationView:
        """Reserve seats and GA tickets, all or none."""
        answer: ReservationView = await self.document(
            "hold",
            "POST",
            f"/events/{segment(event_id)}/reservations",
            body=body,
            headers={"idempotency-key": key or new_key()},
            token=token,
        )
        return answer

    async def quote(self, body: QuoteRequest, *, token: str | None = None) -> QuoteAnswer:
        """Quote the price of a reservation. Changes nothing. The problem `promo-code-not-valid` says why in `reason`.
        """
        answer: QuoteAnswer = await self.document("quote", "POST", "/orders/quote", body=body, token=token)
        return answer

    async def prices(
        self, event_id: str, *, each: list[int] | None = None, line: list[str] | None = None, token: str | None = None
    ) -> PricesAnswer:
        """Get the fees and taxes of an event. Fees and taxes are added to the tickets' prices, except for a tax that is
        `included`. `all_in` has what one ticket costs with everything in it, for each price in `each`;
        `together_minor`, what one order of all `line`s (price x quantity) costs.
        """
        answer: PricesAnswer = await self.document(
            "prices",
            "GET",
            f"/orders/events/{segment(event_id)}/prices",
            query={"each": each, "line": line},
            token=token,
        )
        return answer

    async def payment_providers(self, *, token: str | None = None) -> ProvidersAnswer:
        """List payment providers and methods."""
        answer: ProvidersAnswer = await self.document("payment_providers", "GET", "/payments/providers", token=token)
        return answer

    async def orders(
        self, *, page: int | None = None, page_size: int | None = None, token: str | None = None
    ) -> OrdersPage:
        """List my orders, newest first. Orders of the caller's passes or user, and those that the browser's order
        cookies open. With an order's own token it is that order alone.
        """
        answer: OrdersPage = await self.document(
            "orders", "GET", "/orders", query={"page": page, "page_size": page_size}, token=token
        )
        return answer

    async def create_order(self, body: NewOrder, *, key: str | None = None, token: str | None = None) -> OrderAccepted:
        """Create an order; it is charged in the background."""
        answer: OrderAccepted = await self.document(
            "create_order", "POST", "/orders", body=body, headers={"idempotency-key": key or new_key()}, token=token
        )
        return answer

    async def cancel_order(self, reference: str, *, token: str | None = None) -> OrderView:
        """Cancel an order before payment. Answers 202 while the provider still has to confirm it."""
        answer: OrderView = await self.document(
            "cancel_order", "POST", f"/orders/{segment(reference)}/cancel", token=token
        )
        return answer

    async def extend_order(self, reference: str, *, token: str | None = None) -> OrderView:
        """Get more time to pay, once."""
        answer: OrderView = await self.document(
            "extend_order", "POST", f"/orders/{segment(reference)}/extend", token=token
        )
        return answer

    async def correct_order_email(self, reference: str, body: EmailChange, *, token: str | None = None) -> OrderView:
        """Correct the e-mail address of an order. Mail goes to the new address from then on, and of a sold order the
        confirmation goes there at once. Possible three times, not for an order that has ended. Limits per customer
        go on counting the address that ordered.
        """
        answer: OrderView = await self.document(
            "correct_order_email", "POST", f"/orders/{segment(reference)}/email", body=body, token=token
        )
        return answer

    async def pay_again(
        self, reference: str, body: NewPayment, *, key: str | None = None, token: str | None = None
    ) -> OrderAccepted:
        """Retry a declined payment."""
        answer: OrderAccepted = await self.document(
            "pay_again",
            "POST",
            f"/orders/{segment(reference)}/payments",
            body=body,
            headers={"idempotency-key": key or new_key()},
            token=token,
        )
        return answer

    async def tickets(self, reference: str, *, token: str | None = None) -> TicketsAnswer:
        """List the tickets of an order with their codes. Empty until the order is confirmed. Where codes rotate,
        `window_s` says how often to fetch them again.
        """
        answer: TicketsAnswer = await self.document(
            "tickets", "GET", f"/orders/{segment(reference)}/tickets", token=token
        )
        return answer

    async def ticket_svg(self, reference: str, ticket_id: str, *, token: str | None = None) -> bytes:
        """Get a ticket's code as SVG."""
        answer: bytes = await self.content(
            "ticket_svg", "GET", f"/orders/{segment(reference)}/tickets/{segment(ticket_id)}.svg", token=token
        )
        return answer

    async def tickets_pdf(self, reference: str, *, token: str | None = None) -> bytes:
        """Get the tickets of an order as PDF."""
        answer: bytes = await self.content(
            "tickets_pdf", "GET", f"/orders/{segment(reference)}/tickets.pdf", token=token
        )
        return answer

    async def receipt_pdf(self, reference: str, *, token: str | None = None) -> bytes:
        """Get the receipt of an order as PDF."""
        answer: bytes = await self.content(
            "receipt_pdf", "GET", f"/orders/{segment(reference)}/receipt.pdf", token=token
        )
        return answer

    async def calendar_file(self, reference: str, *, token: str | None = None) -> bytes:
        """Get the show of an order as a calendar file."""
        answer: bytes = await self.content(
            "calendar_file", "GET", f"/orders/{segment(reference)}/event.ics", token=token
        )
        return answer

    async def subscribe_to_reminders(self, body: ReminderRequest, *, token: str | None = None) -> ReminderAnswer:
        """Subscribe to hold reminders. Needs the pass the hold was made with. Repeating it changes nothing; nobody who
        opted out gets mail.
        """
        answer: ReminderAnswer = await self.document(
            "subscribe_to_reminders", "POST", "/reminders", body=body, token=token
        )
        return answer

    async def mail_order_links(self, body: LinksRequest, *, token: str | None = None) -> None:
        """Have the links of an address's orders mailed again. To the address that the orders have, at most once in ten
        minutes. The answer is the same for every address, and comes before anything is looked up.
        """
        await self.document("mail_order_links", "POST", "/orders/links", body=body, token=token)

    async def order(self, reference: str, *, token: str | None = None) -> OrderView:
        """Get an order."""
        answer: OrderView = await self.document("order", "GET", f"/orders/{segment(reference)}", token=token)
        return answer

    def event_updates(
        self,
        event_id: str,
        *,
        sections: str | None = None,
        seats: str | None = None,
        last_event_id: str | None = None,
        token: str | None = None,
    ) -> AsyncGenerator[Update]:
        """Stream the line and the sections of an event."""
        return self.updates(
            "event_updates",
            f"/events/{segment(event_id)}/sections/updates",
            query={"sections": sections, "seats": seats},
            headers={"last-event-id": last_event_id},
            token=token,
        )

    def order_updates(
        self, reference: str, *, last_event_id: str | None = None, token: str | None = None
    ) -> AsyncGenerator[Update]:
        """Stream an order."""
        return self.updates(
            "order_updates",
            f"/orders/{segment(reference)}/updates",
            headers={"last-event-id": last_event_id},
            token=token,
        )
