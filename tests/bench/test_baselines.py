"""The textbook baselines work correctly, and the checks of a side find answers that are not on disk."""

import base64
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import httpx
import orjson
import pytest
from fastapi import FastAPI

from bench.baselines import textbook_joins, textbook_reservations
from bench.harness.load import LoadResult
from bench.harness.measurement import CheckFailed
from bench.harness.testbed import Trial
from bench.line import joins
from bench.stock import reservations
from onsale.local.engines import with_driver

STOCK = """
INSERT INTO textbook.section VALUES ('bench', 'GA0', 5000, 3);
INSERT INTO textbook.seat VALUES ('bench', 'S0-1-1', 5000), ('bench', 'S0-1-2', 5000), ('bench', 'S0-1-3', 5000);
"""


@pytest.fixture
def trial(postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Trial:
    public = next(iter(reservations.PASS_KEYS.public().keys.values()))
    monkeypatch.setenv("BENCH_POSTGRES_URL", with_driver(postgres_url))
    monkeypatch.setenv("BENCH_REDIS_URL", redis_url)
    monkeypatch.setenv("BENCH_PASS_PUBLIC_KEY", base64.b64encode(public).decode())
    monkeypatch.setattr("bench.baselines.pool.CONNECTIONS", 2)
    return Trial(None, postgres_url, redis_url, AsyncExitStack())  # type: ignore[arg-type]  # no servers are started


async def sql(trial: Trial, statement: str) -> list[Any]:
    connection = await asyncpg.connect(with_driver(trial.postgres_url))
    try:
        return (
            list(await connection.fetch(statement))
            if statement.startswith("SELECT")
            else [await connection.execute(statement)]
        )
    finally:
        await connection.close()


async def send(app: FastAPI, *requests: bytes, setup: str = "SELECT 1", trial: Trial) -> list[httpx.Response]:
    """The app's answers to requests of the load generator, sent one after the other once `setup` has run."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://bench") as client,
    ):
        await sql(trial, setup)
        answers = []
        for request in requests:
            head, _, body = request.partition(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            headers = [(name, value) for name, value in (field.split(": ", 1) for field in fields)]
            answers.append(await client.post(line.split(" ")[1], content=body, headers=headers))
        return answers


def result(*answers: httpx.Response) -> LoadResult:
    created = [answer.content for answer in answers if answer.status_code == 201]
    return LoadResult(1, statuses=Counter(answer.status_code for answer in answers), created=created)


async def test_a_textbook_join_is_in_the_sorted_set_and_on_disk(trial: Trial, redis: Any) -> None:
    first, second = await send(textbook_joins.create_app(), joins.JOIN, joins.JOIN, trial=trial)
    assert (first.status_code, second.status_code) == (201, 201)
    assert [answer.json()["position_in_queue"] for answer in (first, second)] == [1, 2]
    assert first.json()["queue_token"].count(".") == 2
    assert await redis.zcard("textbook:bench:line") == 2
    rows = await sql(trial, "SELECT join_seq FROM textbook.place ORDER BY join_seq")
    assert [row["join_seq"] for row in rows] == [1, 2]


async def test_the_check_finds_answered_joins_that_are_not_on_disk(trial: Trial) -> None:
    answers = await send(textbook_joins.create_app(), joins.JOIN, joins.JOIN, trial=trial)
    assert await joins.compare(trial, result(*answers), "textbook.place")
    with pytest.raises(CheckFailed, match="2 joins answered, 1 numbers, 1 of them and 2 on disk"):
        await joins.compare(trial, result(answers[0], answers[0]), "textbook.place")
    with pytest.raises(CheckFailed, match="1 joins answered, 1 numbers, 1 of them and 2 on disk"):
        await joins.compare(trial, result(answers[0]), "textbook.place")
    await sql(trial, "DELETE FROM textbook.place WHERE join_seq = 2")
    with pytest.raises(CheckFailed, match="2 joins answered, 2 numbers, 1 of them and 1 on disk"):
        await joins.compare(trial, result(*answers), "textbook.place")


async def test_a_textbook_reservation_stores_its_tickets_and_refuses_taken_ones(trial: Trial) -> None:
    seats = {"seats": ["S0-1-1", "S0-1-2"]}
    ga = {"ga": [{"section_id": "GA0", "quantity": 2}]}
    genuine = reservations.reservation_request(3, ga)
    signature = genuine.partition(b"Bearer ")[2].partition(b"\r\n")[0].rpartition(b".")[2]
    forged = genuine.replace(signature, b"A" * len(signature))
    request = reservations.reservation_request
    requests = (request(1, seats), request(2, ga), forged, *(request(4, seats),) * 2, request(5, ga))
    answers = await send(textbook_reservations.create_app(), *requests, setup=STOCK, trial=trial)
    assert [answer.status_code for answer in answers] == [201, 201, 401, 409, 409, 409]
    rows = await sql(trial, "SELECT holder, seats, ga_quantity, total_minor FROM textbook.reservation ORDER BY holder")
    assert [tuple(row) for row in rows] == [
        ("fan-00000001", seats["seats"], 0, 10_000),
        ("fan-00000002", [], 2, 10_000),
    ]
    held = await sql(trial, "SELECT reservation_id::text FROM textbook.seat WHERE status = 'held'")
    assert [row["reservation_id"] for row in held] == [answers[0].json()["reservation_id"]] * 2
    assert (await sql(trial, "SELECT seats_remaining FROM textbook.section"))[0]["seats_remaining"] == 1
    assert reservations.compare(result(*answers), on_disk=2, seats=2, ga=2)


def reserved(reservation_id: str, *seats: str, ga: int = 0) -> httpx.Response:
    body = {"reservation_id": reservation_id, "seats": seats, "ga_quantity": ga}
    return httpx.Response(201, content=orjson.dumps(body))


def test_the_check_finds_reservations_that_are_not_on_disk_or_share_a_seat() -> None:
    answered = result(reserved("a", "S0-1-1", "S0-1-2"), reserved("b", ga=2))
    assert reservations.compare(answered, on_disk=2, seats=2, ga=2)
    for wrong in ({"on_disk": 1, "seats": 2, "ga": 2}, {"on_disk": 2, "seats": 1, "ga": 2},
                  {"on_disk": 2, "seats": 2, "ga": 4}):  # fmt: skip
        with pytest.raises(CheckFailed):
            reservations.compare(answered, **wrong)
    with pytest.raises(CheckFailed, match="1 different"):
        reservations.compare(result(reserved("a", "S0-1-1"), reserved("b", "S0-1-1")), on_disk=2, seats=1, ga=0)


def test_half_of_the_requests_are_for_seats_and_no_seat_is_requested_twice() -> None:
    bodies = [orjson.loads(request.partition(b"\r\n\r\n")[2]) for request in reservations.reservation_requests(of=400)]
    seats = [seat for body in bodies for seat in body.get("seats", [])]
    assert len(bodies) == 400
    assert len(set(seats)) == len(seats) == 400
    assert Counter(body["ga"][0]["section_id"] for body in bodies if "ga" in body) == dict.fromkeys(
        ("GA0", "GA1", "GA2", "GA3"), 50
    )
