"""Lines of a sale: decided once for a request and all it causes, and by share for work that no request asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from shared.concurrency.coalescing import GroupCommit
from shared.errors.problems import SoldOut
from shared.runtime import tracing as module
from shared.runtime.logging import request_fields
from shared.runtime.tracing import SaleLog


class Lines(list[dict[str, Any]]):
    def info(self, name: str, **facts: Any) -> None:
        orjson.dumps(facts)
        self.append({**request_fields.get(), **facts, "name": name})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    collected = Lines()
    monkeypatch.setattr(module, "SALE", collected)
    return collected


def lines_of(share: float) -> SaleLog:
    made = SaleLog()
    made.use(share)
    return made


@pytest.mark.parametrize(("share", "on"), [(0.0, False), (0.01, True), (1.0, True)])
def test_a_share_of_nothing_is_off(share: float, on: bool) -> None:
    assert lines_of(share).on is on


def test_services_of_one_process_share_the_largest_share() -> None:
    made = lines_of(0.5)
    made.use(0.0)
    assert made.share == 0.5


@dataclass
class Sent:
    """A request, as far as its line shows it."""

    id: str
    method: str = "POST"
    status: int = 201
    path: Mapping[str, str] = field(default_factory=lambda: {"event_id": "e"})
    facts: Mapping[str, Any] = field(default_factory=dict)


def test_a_request_is_logged_with_all_it_causes_or_not_at_all(lines: Lines) -> None:
    made, logged = lines_of(0.5), 0
    for n in range(400):
        lines.clear()
        picked = made.picks_request("/events/e/queue", named=False)
        with made.request(picked):
            for _ in range(3):
                made.write("sale.engine")
        if picked:
            made.ended(Sent(f"r{n}"), "/events/{event_id}/queue", ms=1.234)
        assert len(lines) == 4 * picked
        logged += picked
    assert 100 < logged < 300


def test_a_call_of_a_logged_request_brings_its_id_and_is_logged_there(lines: Lines) -> None:
    made = lines_of(1e-9)
    fields = request_fields.set({"request_id": "abcdefgh-1"})
    with made.request(True):
        assert made.headers() == {"x-request-id": "abcdefgh-1"}
    assert made.headers() == {}
    request_fields.reset(fields)
    with made.request(made.picks_request("/internal/joins", named=True)):
        made.write("sale.engine")
    assert len(lines) == 1


async def test_a_batch_has_the_requests_of_its_members_and_how_it_ended_for_them(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sale_log, "on", True)
    monkeypatch.setattr(module.sale_log, "share", 1e-9)

    async def work(items: list[str]) -> list[str | BaseException]:
        module.sale_log.write("sale.engine")
        return [SoldOut() if item == "late" else item for item in items]

    group: GroupCommit[str, str] = GroupCommit(work, name="holds", batch_max=10, waiting_max=10)
    request_fields.set({"request_id": "abcdefgh-2", "event_id": "e"})
    with module.sale_log.request(True):
        early = group.enqueue("early")
    late = group.enqueue("late")
    assert await early == "early"
    with pytest.raises(SoldOut):
        await late
    await group.close()
    engine, batch = lines
    assert (engine["name"], engine["request_id"], engine["event_id"]) == ("sale.engine", "abcdefgh-2", "e")
    assert (batch["batch"], batch["members"], batch["outcomes"]) == ("holds", 2, {"ok": 1, "sold-out": 1})
    assert (batch["request_ids"], batch["ms"] >= 0, batch["waited_ms"] >= 0) == (["abcdefgh-2"], True, True)
