"""A fake queue in memory: it answers as the queue does, records requests, and fails or waits when a test says so."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from shared.contracts.frames import LaneHead, LineFrame, LotteryFrame, Revoked
from shared.contracts.lottery import PublishedLottery
from shared.contracts.queue import (
    ClaimAnswer,
    Claimed,
    HeartbeatAnswer,
    HeartbeatReport,
    HoldersAnswer,
    HoldersQuestion,
    JoinAnswer,
    JoinBatch,
    Joined,
    LeaveAnswer,
    PlaceFound,
    PlacesQuestion,
    PlaceStatus,
    PlaceStatuses,
    ReleaseAnswer,
    RoomQuestion,
)
from shared.errors.problems import NoLottery, Problem, StaleEpoch, Unavailable, UnknownEvent
from shared.runtime.clock import now_ms
from shared.security.auth import SERVICE_HEADER, check_service_call
from shared.security.tokens import checkout_key, development_keys
from tests.gateway.tokens import signed_pass
from tests.support.running.serving import serving

SESSION_S = 600
CLAIM_MS = 60_000


@dataclass
class FakeRoom:
    """A waiting room; place number n belongs to `holders[n - 1]`."""

    event_id: str
    epoch: int = 1
    version: int = 1
    head_seq: int = 0
    state: str = "open"
    ready: bool = True
    rate_per_s: float = 10.0
    calls_per_s: float | None = None
    message: str | None = None
    sale_starts_at_ms: int | None = None
    throttled: dict[str, Any] | None = None
    lottery: PublishedLottery | None = None
    draw: LotteryFrame | None = None
    refuse: str | None = None
    signed_in_only: bool = False
    holders: list[str] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    claimed: dict[int, int] = field(default_factory=dict)  # join_seq: when its pass expires, in ms
    revoked: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> LineFrame:
        return LineFrame.model_validate(
            {
                "event_id": self.event_id, "epoch": self.epoch, "version": self.version, "ready": self.ready,
                "at_ms": now_ms(), "state": self.state, "rate_per_s": self.rate_per_s, "message": self.message,
                "calls_per_s": self.calls_per_s, "sale_starts_at_ms": self.sale_starts_at_ms,
                "throttled": self.throttled, "lottery": self.draw,
                "options": {"entry": {"signed_in_only": self.signed_in_only}, **self.options},
                "lanes": {0: LaneHead(head_seq=self.head_seq, tail_seq=len(self.holders))},
            }
        )  # fmt: skip

    def change(self, **changes: Any) -> LineFrame:
        for name, value in changes.items():
            setattr(self, name, value)
        self.version += 1
        return self.frame()

    def status(self, join_seq: int) -> str:
        if join_seq in self.ended:
            return self.ended[join_seq]
        if join_seq in self.claimed:
            return "admitted"
        return "ready" if join_seq <= self.head_seq else "waiting"

    def seq_of(self, holder: str) -> int | None:
        """The number of the holder's last place."""
        return max((seq for seq, each in enumerate(self.holders, 1) if each == holder), default=None)

    def place_status(self, join_seq: int) -> PlaceStatus:
        status = self.status(join_seq)
        until_ms = self.claimed.get(join_seq, now_ms() + CLAIM_MS) if status in ("ready", "admitted") else None
        return PlaceStatus.model_validate({"status": status, "until_ms": until_ms})


class FakeQueue:
    """An ASGI app that serves `/internal/…`.

    Each of `fail` fails one request; while `may_answer` is cleared, requests wait. Both spare heartbeats.
    """

    url: str

    def __init__(self) -> None:
        self.rooms: dict[str, FakeRoom] = {}
        self.calls: Counter[str] = Counter()
        self.requests: list[Any] = []
        self.fail: list[Problem] = []
        self.heartbeats_fail = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._answers: dict[str, tuple[type[BaseModel], Callable[[Any], BaseModel]]] = {
            "/joins": (JoinBatch, self.join),
            "/places": (HoldersQuestion, self.find),
            "/status": (PlacesQuestion, self.status),
            "/claims": (PlacesQuestion, self.claim),
            "/leaves": (PlacesQuestion, self.leave),
            "/releases": (PlacesQuestion, self.release),
            "/rooms/revoked": (RoomQuestion, self.revoked),
            "/heartbeats": (HeartbeatReport, lambda report: HeartbeatAnswer(report_again_s=0.2)),
            "/lottery": (RoomQuestion, self.lottery),
            "/rooms/frame": (RoomQuestion, lambda question: self.room(question.event_id).frame()),
        }

    def open(self, event_id: str = "show", **fields: Any) -> FakeRoom:
        room = self.rooms[event_id] = FakeRoom(event_id, **fields)
        return room

    def received(self, kind: type[BaseModel]) -> list[Any]:
        return [question for question in self.requests if isinstance(question, kind)]

    async def __call__(self, scope, receive, send) -> None:
        request = Request(scope, receive)
        content = await request.body()
        path = request.url.path
        header = request.headers.get(SERVICE_HEADER, "")
        check_service_call(development_keys("service"), header, "POST", path, content, now_s=time.time())
        endpoint = path.removeprefix("/internal")
        self.calls[endpoint] += 1
        kind, answer = self._answers[endpoint]
        question = kind.model_validate_json(content)
        self.requests.append(question)
        if endpoint != "/heartbeats":
            await self.may_answer.wait()
        try:
            if self.heartbeats_fail and endpoint == "/heartbeats":
                raise Unavailable
            if self.fail and endpoint != "/heartbeats":
                raise self.fail.pop(0)
            response = Response(answer(question).model_dump_json())
        except Problem as problem:
            response = Response(problem.body(), problem.code)
        await response(scope, receive, send)

    def room(self, event_id: str, epoch: int | None = None) -> FakeRoom:
        if event_id not in self.rooms:
            raise UnknownEvent
        room = self.rooms[event_id]
        if epoch not in (None, room.epoch):
            raise StaleEpoch
        return room

    def lottery(self, question: RoomQuestion) -> BaseModel:
        lottery = self.room(question.event_id).lottery
        if lottery is None:
            raise NoLottery
        return lottery

    def join(self, batch: JoinBatch) -> JoinAnswer:
        room = self.room(batch.event_id)
        joined = []
        for fan in batch.joins:
            join_seq = room.seq_of(fan.holder)
            known = join_seq is not None and join_seq not in room.ended
            if room.signed_in_only and fan.user_id is None and not known:
                joined.append(Joined(word="sign-in-needed"))
                continue
            refusal = "closed" if room.state == "closed" else room.refuse
            if refusal and not known:
                joined.append(Joined.model_validate({"word": refusal}))
                continue
            if join_seq is None or not known:
                room.holders.append(fan.holder)
                join_seq = len(room.holders)
            fields = {"word": "known" if known else "joined", "join_seq": join_seq, "status": room.status(join_seq)}
            joined.append(Joined.model_validate(fields))
        return JoinAnswer(epoch=room.epoch, joined=joined, frame=room.change())

    def find(self, question: HoldersQuestion) -> HoldersAnswer:
        room = self.room(question.event_id)
        places = [
            PlaceFound(lane=0, join_seq=seq) if (seq := room.seq_of(holder)) and holder.startswith("user.") else None
            for holder in question.holders
        ]
        return HoldersAnswer(epoch=room.epoch, places=places)

    def status(self, question: PlacesQuestion) -> PlaceStatuses:
        room = self.room(question.event_id, question.epoch)
        return PlaceStatuses(places=[room.place_status(place.join_seq) for place in question.places])

    def claim(self, question: PlacesQuestion) -> ClaimAnswer:
        room = self.room(question.event_id, question.epoch)
        return ClaimAnswer(claims=[self._claimed(room, place.join_seq, place.holder) for place in question.places])

    def _claimed(self, room: FakeRoom, join_seq: int, holder: str) -> Claimed:
        status = room.status(join_seq)
        if status not in ("ready", "admitted"):
            return Claimed.model_validate({"word": status})
        now_s = int(time.time()) // 60 * 60
        jti = f"{room.epoch}-0-{join_seq}-1"
        expires_at_s = room.claimed.setdefault(join_seq, (now_s + SESSION_S) * 1000) // 1000
        fields: dict[str, Any] = {
            "event_id": room.event_id, "holder": holder, "jti": jti, "epoch": room.epoch, "join_seq": join_seq,
            "issued_at_s": expires_at_s - SESSION_S, "expires_at_s": expires_at_s,
        }  # fmt: skip
        return Claimed(
            word="admitted",
            admission=signed_pass(**fields),
            jti=jti,
            expires_at_ms=expires_at_s * 1000,
            checkout_key=checkout_key(development_keys("checkout"), jti),
        )

    def leave(self, question: PlacesQuestion) -> LeaveAnswer:
        room = self.room(question.event_id, question.epoch)
        for place in question.places:
            room.ended.setdefault(place.join_seq, "left")
        return LeaveAnswer.model_validate({"places": [room.ended[place.join_seq] for place in question.places]})

    def release(self, question: PlacesQuestion) -> ReleaseAnswer:
        room = self.room(question.event_id, question.epoch)
        for place in question.places:
            room.ended.setdefault(place.join_seq, "completed")
            room.revoked[f"{room.epoch}-0-{place.join_seq}-1"] = now_ms() + SESSION_S * 1000
        return ReleaseAnswer.model_validate({"places": [room.ended[place.join_seq] for place in question.places]})

    def revoked(self, question: RoomQuestion) -> Revoked:
        return Revoked(event_id=question.event_id, passes=list(self.room(question.event_id).revoked.items()))


@asynccontextmanager
async def listening() -> AsyncIterator[FakeQueue]:
    """A fake queue on loopback, at its `url`."""
    fake = FakeQueue()
    async with serving(fake) as port:
        fake.url = f"http://127.0.0.1:{port}"
        try:
            yield fake
        finally:
            fake.may_answer.set()
