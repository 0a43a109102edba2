"""Crowds before few tickets: each is sold once, also while payments fail and some who came in do not buy."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from features.console.cli.watch import watched
from features.console.schemas import Part
from onsale.client import Client, Fan, NotCalled, Pace, Problem
from onsale.client.fan_documents import ReservationView, ReserveBody
from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from shared.redis.client import connect
from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite, bearer, client_of, fan_of, may_be_refused, running_suite
from tests.support.wait import wait_until

FANS, TICKETS = 300, 100


async def test_three_hundred_fans_buy_all_of_a_hundred_tickets_once(suite: RunningSuite) -> None:
    sections = [
        {"section_id": "A", "name": "Block", "kind": "seated", "rows": 5, "seats_per_row": 10, "price_minor": 5000},
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
    ]
    event_id = await suite.open_event(sections=sections)
    async with suite.browser() as browser:
        endings = await asyncio.gather(*(buy_one_ticket(browser, event_id, number) for number in range(FANS)))
        assert sum(tickets for tickets, _ in endings) == TICKETS
        seats = [seat for _, own_seats in endings for seat in own_seats]
        assert len(seats) == len(set(seats)) == 50

        async def nothing_left() -> bool:
            answer = (await browser.get(f"/events/{event_id}/sections")).json()
            return all(section["available_seats"] == section["held_seats"] == 0 for section in answer["sections"])

        await wait_until(nothing_left, timeout_s=10)
    assert await suite.wrong(event_id) == []


async def buy_one_ticket(browser, event_id: str, number: int) -> tuple[int, list[str]]:
    """Tries three seats, then the floor, then all other seats; the number of tickets bought, and their seats."""
    fan = fan_of(browser, event_id)
    fan.pace = Pace()  # as often as the suite says
    try:
        await fan.come_in()
    except NotCalled as over:
        if over.last["state"] != "sold_out":
            raise
        return 0, []
    selections: list[ReserveBody] = [
        {"seats": [f"A-{1 + (number + step) % 50 // 10}-{1 + (number + step) % 10}"]} for step in range(50)
    ]
    selections = [*selections[:3], {"ga": [{"section_id": "GA", "quantity": 1}]}, *selections[3:]]
    for selection in selections:
        held = None
        with may_be_refused("seats-taken", "sold-out"):
            held = await fan.hold(selection)
        if held is not None:
            assert (await fan.buy(held))["status"] == "confirmed"
            return 1, list(held["seats"])
        if not await is_anything_left(browser, event_id):
            break
    return 0, []


async def is_anything_left(browser, event_id: str) -> bool:
    answer = (await browser.get(f"/events/{event_id}/sections")).json()
    return any(section["available_seats"] + section["held_seats"] for section in answer["sections"])


PURCHASES = 60


def checked(history: Path, suite: RunningSuite) -> "subprocess.CompletedProcess[str]":
    """`onsale check-history`, run by an operator beside the suite."""
    command = [sys.executable, "-P", "-m", "onsale", "check-history", str(history)]
    environ = {name: value for name, value in os.environ.items() if "POSTGRES_URL" not in name}
    address = ["--data-dir", str(suite.data_dir)]
    return subprocess.run([*command, *address], capture_output=True, text=True, timeout=120, check=False, env=environ)


async def test_after_sixty_purchases_with_payment_faults_the_books_agree(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(
        sections=[{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 1000, "price_minor": 3000}]
    )
    report, history = tmp_path / "report.json", tmp_path / "history.jsonl"
    command = [sys.executable, "-P", "-m", "onsale", "simulate", "--event-id", event_id, "--fans", str(PURCHASES)]
    options = ["--chaos", "--arrive-over", "1", "--streams", "5", "--seed", "7", "--json", str(report)]
    options += ["--history", str(history)]
    address = ["--url", suite.url, "--data-dir", str(suite.data_dir)]
    run = await asyncio.to_thread(
        subprocess.run, [*command, *options, *address], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    kept = await asyncio.to_thread(checked, history, suite)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    result = json.loads(report.read_text())
    assert result["bought"] > PURCHASES / 4
    assert (result["books_wrong"], result["failed"], result["server_errors"]) == ([], {}, 0)
    async with httpx.AsyncClient() as client:
        charges = (await client.get(f"{suite.engines['sandbox_url']}/charges", params={"limit": 1000})).json()
    assert len({charge["method"] for charge in charges["charges"]}) >= 8
    assert any(charge["refunded_minor"] for charge in charges["charges"]), "some payments failed, as intended"


@pytest.mark.journey
async def test_a_suite_killed_during_sales_keeps_every_acknowledged_place_and_order() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-restart-", dir=fast_directory()) as folder:
        suite = RunningSuite(Path(folder) / "data").start().wait_until_ready()
        try:
            event_id = await suite.open_event()
            places, order_tokens = await sell_until_killed(suite, event_id)
            assert len(places) == len(set(places.values()))
            suite.start().wait_until_ready()
            await check_places_and_orders(suite, event_id, places, order_tokens)
        finally:
            suite.stop()


async def sell_until_killed(suite: RunningSuite, event_id: str) -> tuple[dict[str, int], dict[str, str]]:
    """Fans join and buy until `kill -9`. Returns the acknowledged places (queue token → `join_seq`) and orders
    (reference → order token).
    """
    places: dict[str, int] = {}
    order_tokens: dict[str, str] = {}

    async def join_and_buy(browser: httpx.AsyncClient, number: int) -> None:
        fan = fan_of(browser, event_id)
        await fan.join()
        places[str(fan.queue_token)] = fan.join_seq
        await fan.wait()
        await fan.claim()
        order = await fan.order(await fan.hold({"seats": [f"A-{1 + number // 10}-{1 + number % 10}"]}))
        order_tokens[order["reference"]] = order["order_token"]

    async with suite.browser() as browser:
        fans = [asyncio.create_task(join_and_buy(browser, number)) for number in range(40)]
        await wait_until(lambda: len(order_tokens) >= 5, timeout_s=20)
        suite.program.end(signal.SIGKILL)
        await asyncio.gather(*fans, return_exceptions=True)
    return places, order_tokens


async def check_places_and_orders(
    suite: RunningSuite, event_id: str, places: dict[str, int], order_tokens: dict[str, str]
) -> None:
    async with suite.browser() as browser:
        for token, join_seq in places.items():
            answer = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(token))
            assert answer.json()["join_seq"] == join_seq

        async def all_are_confirmed() -> bool:
            answers = [
                await browser.get(f"/orders/{ref}", headers=bearer(token)) for ref, token in order_tokens.items()
            ]
            return all(answer.json()["status"] == "confirmed" for answer in answers)

        await wait_until(all_are_confirmed, timeout_s=40, interval_s=0.25)
        newcomer = fan_of(browser, event_id)
        await newcomer.join()
        assert newcomer.join_seq > max(places.values())
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=20, interval_s=0.5)


@pytest.mark.journey
def test_no_process_is_left_after_ctrl_c_or_kill() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-left-", dir=fast_directory()) as folder:
        data_dir = Path(folder) / "data"
        suite = RunningSuite(data_dir).start().wait_until_ready()
        assert processes_of(data_dir)
        assert suite.stop(signal.SIGINT, within_s=10) == 0
        assert not processes_of(data_dir)
        suite.start().wait_until_ready()
        suite.program.end(signal.SIGKILL)
        asyncio.run(wait_until(lambda: not processes_of(data_dir), timeout_s=15))
        assert suite.start().wait_until_ready().stop(signal.SIGTERM, within_s=10) == 0


@pytest.mark.journey
async def test_a_fan_buys_from_several_processes_and_none_is_left() -> None:
    with running_suite(processes=2) as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser:
            fan = await fan_of(browser, event_id).come_in()
            order = await fan.buy(await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}))
            assert order["status"] == "confirmed"
        assert await suite.wrong(event_id) == []
    assert not processes_of(suite.data_dir)


def processes_of(data_dir: Path) -> list[str]:
    """Command lines of other processes that name the data directory."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(data_dir) in line and int(line.split()[0]) != os.getpid()]


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "parts_away") as suite:
        yield suite


async def test_a_part_that_is_silent_grows_old_within_three_seconds_and_the_others_do_not(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    inventory = parts.programs["inventory"]
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states):
        await anext(states)
        inventory.send(signal.SIGSTOP)
        suspended_s = time.monotonic()
        try:
            ages: Mapping[Part, float | None] = {}
            async for state in states:
                ages = state.snapshot.vitals.ages
                if (ages["inventory"] or 0) > 1.5:
                    break
            assert time.monotonic() - suspended_s < 3.5
            assert all((ages[part] or 0) < 1.5 for part in ("queue", "orders", "notifier")), ages
        finally:
            inventory.send(signal.SIGCONT)
        async for state in states:
            if (state.snapshot.vitals.ages["inventory"] or 0) < 1.5:
                break


async def test_a_killed_console_leaves_the_sale_alone_and_the_screen_goes_on_when_it_is_back(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states), parts.browser() as browser:
        before = await anext(states)
        await parts.restart("console", signal.SIGKILL)
        await fan_of(browser, event_id).come_in()
        connected = []
        async for state in states:
            connected.append(state.connected)
            if state.connected and state.snapshot.vitals.line.claimed == 1:
                break
        assert False in connected, "the screen said that nobody answered"
        assert state.snapshot.vitals.at_ms > before.snapshot.vitals.at_ms


ALL_TICKETS, BUYERS, TICKETS_PER_FAN = 300, 108, 6
ROOM = {"claim_window_s": 12, "session_s": 900}
SHORT_HOLDS = {"hold_ttl_s": 8, "grace_s": 0}


@pytest.mark.timeout(150)
async def test_all_tickets_are_sold_although_a_third_of_the_fans_does_not_buy(suite: RunningSuite) -> None:
    """That third never claims, or claims and does nothing, or lets a hold expire; sessions last 15 minutes."""
    sections = [
        {"section_id": "A", "name": "Block", "kind": "seated", "rows": 10, "seats_per_row": 15, "price_minor": 5000},
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 150, "price_minor": 3000},
    ]
    event_id = await suite.open_event(
        sections=sections, room={**ROOM, "max_active": 60, "claim_window_s": 6}, sales=SHORT_HOLDS
    )
    random_order = random.Random(36)
    journeys = random_order.sample(
        [never_claims, never_holds, never_pays] * (BUYERS // 9) + [buys] * (BUYERS - 3 * (BUYERS // 9)), BUYERS
    )
    assert journeys.count(buys) * TICKETS_PER_FAN > ALL_TICKETS, "the buyers want more tickets than there are"
    async with suite.browser() as browser:
        async with asyncio.timeout(120):
            bought = await asyncio.gather(*(journey(browser, event_id) for journey in journeys))
        assert (sum(bought), await stock(client_of(browser), event_id)) == (ALL_TICKETS, (0, 0))
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=10)


async def never_claims(browser: httpx.AsyncClient, event_id: str) -> int:
    await fan_of(browser, event_id).join()
    return 0


async def never_holds(browser: httpx.AsyncClient, event_id: str) -> int:
    await is_admitted(fan_of(browser, event_id))
    return 0


async def never_pays(browser: httpx.AsyncClient, event_id: str) -> int:
    fan = fan_of(browser, event_id)
    if await is_admitted(fan):
        await hold_tickets(fan, TICKETS_PER_FAN)
    return 0


async def buys(browser: httpx.AsyncClient, event_id: str) -> int:
    """Buys until they have all tickets they want or none is left; joins again after a session with too few."""
    bought = 0
    while bought < TICKETS_PER_FAN and any(await stock(client_of(browser), event_id)):
        fan = fan_of(browser, event_id)
        if await is_admitted(fan):
            bought += await purchase(fan, TICKETS_PER_FAN - bought)
    return bought


async def purchase(fan: Fan, wanted: int) -> int:
    """The number of tickets this fan bought before the session ended or all were sold."""
    while hold := await hold_tickets(fan, wanted):
        with may_be_refused("hold-expired"):  # the machine was too slow
            async with asyncio.timeout(60):
                assert (await fan.buy(hold))["status"] == "confirmed"
            return len(hold["seats"]) + int(hold["ga_quantity"])
    return 0


async def hold_tickets(fan: Fan, wanted: int) -> ReservationView | None:
    """A hold of `wanted` tickets, or of one ticket when few are left; none once all are sold."""
    while any(stock_left := await stock(fan.client, fan.event_id)):
        with may_be_refused("sold-out"):
            return await fan.hold({"best_available": {"quantity": wanted if stock_left[0] > 12 else 1, "split": True}})
        await asyncio.sleep(0.5)
    return None


async def stock(client: Client, event_id: str) -> tuple[int, int]:
    sections = (await client.sections(event_id))["sections"]
    return sum(s["available_seats"] for s in sections), sum(s["held_seats"] for s in sections)


async def is_admitted(fan: Fan) -> bool:
    """Joins and claims the call; false if the call expired or the event is sold out."""
    with may_be_refused("sold-out"):
        await fan.join()
    if not fan.join_seq:
        return False
    while (place := await fan.status())["status"] != "expired":
        if place["status"] == "ready":
            with suppress(Problem):
                return bool(await fan.claim())
        elif place["state"] == "sold_out":
            return False
        await asyncio.sleep(0.8)
    return False


async def test_idle_sessions_delay_the_call_for_the_last_tickets_by_no_more_than_a_claim_window(
    suite: RunningSuite,
) -> None:
    async with suite.browser() as browser:

        async def check_waiting_fans_are_called(tickets: int) -> None:
            ga = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": tickets, "price_minor": 3000}]
            event_id = await suite.open_event(sections=ga, room=ROOM, sales=SHORT_HOLDS)
            idle_fans, waiting = ([fan_of(browser, event_id) for _ in range(tickets)] for _ in range(2))
            async with aclosing(connect(suite.engines["redis_url"])) as redis:  # the queue knows the stock
                await wait_until(partial(redis.hget, f"queue:{{{event_id}}}:room", "stock_known"), timeout_s=10)
            for fan in idle_fans:
                await fan.come_in()
            for fan in waiting:
                await fan.join()
            assert {(await fan.status())["status"] for fan in waiting} == {"waiting"}, (
                "the admitted fans may still buy all tickets"
            )
            for fan in waiting:
                async with asyncio.timeout(30):
                    assert (await fan.wait())["status"] == "ready"
                await fan.claim()
            [first, *_] = idle_fans
            assert await first.hold({"ga": [{"section_id": "GA", "quantity": 1}]}), "an idle session can still buy"

        await asyncio.gather(check_waiting_fans_are_called(1), check_waiting_fans_are_called(3))
