"""Fakes of queue, inventory and orders: one app that serves the internal endpoints that the notifier calls."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import APIRouter, FastAPI

from shared.contracts.frames import LineFrame, OrderFrame, Revoked, SeatsFrame, StockFrame
from shared.contracts.inventory import ReadStock
from shared.contracts.orders import OrdersAnswer, OrdersQuestion
from shared.contracts.queue import (
    HeartbeatAnswer,
    HeartbeatReport,
    HoldersAnswer,
    HoldersQuestion,
    PlaceFound,
    RoomQuestion,
)
from shared.errors.problems import Unavailable, UnknownEvent
from shared.process.settings import ServiceSettings
from shared.web.app import create_service
from tests.notifier.frames import EVENT, REFERENCE, line_frame, order_frame, seats_frame, stock_frame


@dataclass
class FakeServices:
    """What the three services answer, and the calls they got; `away` makes every call fail, except heartbeats."""

    line: LineFrame = field(default_factory=lambda: line_frame(10, 5))
    stock: StockFrame = field(default_factory=lambda: stock_frame(10, A=100, B=200, GA1=300))
    seats: SeatsFrame = field(default_factory=lambda: seats_frame(10, bytes(8)))
    orders: dict[str, OrderFrame] = field(default_factory=lambda: {REFERENCE: order_frame(10, "pending")})
    places: dict[str, int] = field(default_factory=dict)
    reports: list[HeartbeatReport] = field(default_factory=list)
    revoked: list[tuple[str, int]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    away: bool = False
    port: int = 0

    def app(self) -> FastAPI:
        router = APIRouter()

        @router.post("/rooms/frame")
        async def read_frame(question: RoomQuestion) -> LineFrame:
            self._record_call("frame", question.event_id)
            return self.line

        @router.post("/rooms/revoked")
        async def list_revoked(question: RoomQuestion) -> Revoked:
            return Revoked(event_id=question.event_id, passes=self.revoked)

        @router.post("/places")
        async def find_places(question: HoldersQuestion) -> HoldersAnswer:
            self._record_call("places", question.event_id)
            seqs = [self.places.get(holder) for holder in question.holders]
            return HoldersAnswer(epoch=1, places=[PlaceFound(lane=0, join_seq=seq) if seq else None for seq in seqs])

        @router.post("/stock")
        async def read_stock(question: ReadStock) -> StockFrame:
            self._record_call("stock", question.event_id)
            return self.stock

        @router.post("/seats")
        async def read_seats(question: ReadStock) -> SeatsFrame:
            self._record_call("seats", question.event_id)
            return self.seats

        @router.post("/orders/read")
        async def read_orders(question: OrdersQuestion) -> OrdersAnswer:
            self._record_call("orders")
            return OrdersAnswer(orders=[self.orders.get(reference) for reference in question.references])

        @router.post("/heartbeats")
        async def take_heartbeats(report: HeartbeatReport) -> HeartbeatAnswer:
            self.reports.append(report)
            return HeartbeatAnswer(report_again_s=0.2)

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield

        settings = ServiceSettings(log_requests=False)
        return create_service("queue", settings, title="t", lifespan=lifespan, internal_routers=[router])

    def _record_call(self, endpoint: str, event_id: str = EVENT) -> None:
        self.calls.append(endpoint)
        if self.away:
            raise Unavailable
        if event_id != EVENT:
            raise UnknownEvent
