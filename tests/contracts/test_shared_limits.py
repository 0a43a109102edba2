"""What is counted against abuse in the memory of a process holds over all processes: together they allow no more than
one does, but for the rounding of each part, and each lets somebody in.

A room that a test opens in one transaction is as the queue leaves one that an operator has opened.

What stands on rows and chairs: from rules and lists, each once, and described again as briefly as it can be.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from math import ceil
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from redis.asyncio import Redis

from features.forward_auth.gateway.decision import RETURN_LINK, ForwardAuth
from features.pages.gateway.plain_pages import PlainPageLimit
from features.proof_of_work.gateway import WAITS_MAX, ArrivalRate, EntryDelays
from services.gateway.protection.rate_limits import RateLimits, require_token
from services.gateway.settings import Settings as GatewaySettings
from services.inventory.settings import Settings as InventorySettings
from services.notifier.headroom import Headroom
from services.notifier.problems import StreamRejected
from services.notifier.settings import Settings as NotifierSettings
from services.notifier.streams.open_stream import StreamLimiter
from services.notifier.tuning import DEFAULTS
from services.queue import redis_keys
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.event_parts.seat_labels import numbers, rule_of
from shared.errors.problems import BadCredential, TooManyRequests, TooManyWrongCodes
from shared.security.auth import WRONG_KEYS_PER_MINUTE, WrongKeys
from shared.security.limits import ADDRESS_AT_ONCE, AddressGuessLimiter, AddressHolds, FanLimit, Guess
from shared.security.tokens import development_keys
from tests.queue.conftest import Inventory
from tests.support.engines.database import Database
from tests.support.running.services import ROOM, TEST, QueueService, queue_service

ROOT = Path(__file__).parents[2]
PROCESSES = (1, 2, 3, 8)
ADDRESS = "203.0.113.9"
SCOPE = {"type": "http", "client": (ADDRESS, 1), "headers": []}


def gateway(processes: int) -> GatewaySettings:
    return GatewaySettings(processes=processes, fan_calls_per_s=7, address_joins_per_s=3)


def fans(processes: int) -> Callable[[], object]:
    limits = RateLimits(gateway(processes))
    return lambda: limits.check_fan("show", "fan")


def addresses(processes: int) -> Callable[[], object]:
    limits = RateLimits(gateway(processes))
    return lambda: limits.check_address(SCOPE)


def return_links(processes: int) -> Callable[[], object]:
    others = dict.fromkeys(("redis", "queue", "line_cache", "token_reader", "place_client", "passes_by"))
    state: Any = SimpleNamespace(settings=gateway(processes), **others)
    links = ForwardAuth(state)._links
    return lambda: require_token(links.take(("show", "fan"), now_s=monotonic()), RETURN_LINK)


def fan_calls(processes: int) -> Callable[[], object]:
    limit = FanLimit(per_s=20, keys_max=10, shared_by=processes)
    return lambda: limit.check("fan")


def pages(processes: int) -> Callable[[], object]:
    limit = PlainPageLimit(per_s=50, addresses_max=10, shared_by=processes)

    def render() -> None:
        if not limit.allow(None):
            raise TooManyRequests

    return render


def entry_waits(processes: int) -> Callable[[], object]:
    delays = EntryDelays(development_keys("queue-token"), addresses_max=10, processes=processes)
    return lambda: delays._begin(ADDRESS, lasts_s=60)


def streams(processes: int) -> Callable[[], object]:
    limiter = StreamLimiter(NotifierSettings(processes=processes), Headroom(DEFAULTS))
    limiter._headroom.shortage = lambda now_s: None  # type: ignore[method-assign]
    return lambda: limiter.acquire("fan")


def wrong_keys(processes: int) -> Callable[[], object]:
    limit = WrongKeys(shared_by=processes)

    def wrong() -> None:
        refusal = limit.refusal(BadCredential(), ADDRESS)
        if isinstance(refusal, TooManyWrongCodes):
            raise refusal

    return wrong


LIMITS: dict[Callable[[int], Callable[[], object]], int] = {
    fans: 70, addresses: 30, return_links: 20, fan_calls: 200, pages: 50, entry_waits: WAITS_MAX, streams: 10,
    wrong_keys: WRONG_KEYS_PER_MINUTE,
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.__name__)
async def test_several_processes_allow_no_more_than_one(limit: Callable[[int], Callable[[], object]]) -> None:
    """Asyncio's clock is that of the streams' limiter."""
    for processes in PROCESSES:
        each = []
        for ask in [limit(processes) for _ in range(processes)]:
            allowed = 0
            with suppress(TooManyRequests, TooManyWrongCodes, StreamRejected):
                while allowed < 1_000:
                    ask()
                    allowed += 1
            each.append(allowed)
        most = LIMITS[limit]
        assert each == [pytest.approx(ceil(most / processes), abs=1)] * processes
        assert most <= sum(each) < most + 2 * processes


@pytest.mark.parametrize("processes", PROCESSES)
async def test_holds_of_an_address(processes: int) -> None:
    settings = InventorySettings(processes=processes)
    most, together = settings.address_holds_max, 0
    for _ in range(processes):
        holds = AddressHolds(most=ceil(most / processes), keys_max=1_000)
        with suppress(TooManyRequests):
            for number in range(1_000):
                with holds.counted(ADDRESS, f"r-{number}", lasts_s=60) as counted:
                    counted.is_held = True
                together += 1
    assert most <= together < most + processes


@pytest.mark.parametrize("processes", PROCESSES)
async def test_wrong_codes_of_an_address(processes: int) -> None:
    together = 0
    for _ in range(processes):
        limiter = AddressGuessLimiter(shared_by=processes)
        with suppress(TooManyWrongCodes):
            for _ in range(1_000):
                async with AsyncExitStack() as stack:
                    guess: Guess = await stack.enter_async_context(limiter.guess("show", ADDRESS))
                    guess.wrong = True
                together += 1
    assert ADDRESS_AT_ONCE <= together < ADDRESS_AT_ONCE + 2 * processes


def test_arrivals_count_as_many_times_as_there_are_processes() -> None:
    """Proof of work follows the joins of the whole room, of which a process sees its part."""
    one, of_four = ArrivalRate(events_max=10), ArrivalRate(events_max=10, part=1 / 4)
    for number in range(40):
        one.record("show", now_s=0.0)
        if number % 4 == 0:
            of_four.record("show", now_s=0.0)
    assert of_four.per_s("show", now_s=1.0) == pytest.approx(one.per_s("show", now_s=1.0))


MADE = {
    "Buckets", "FanLimit", "GuessLimiter", "AddressGuessLimiter", "WrongKeys", "PlainPageLimit", "AddressHolds",
    "EntryDelays", "ArrivalRate",
}  # fmt: skip


def limits_made() -> Iterator[tuple[str, str]]:
    """Where each limit of the services is made, and how."""
    for file in sorted(file for folder in ("services", "shared", "features") for file in (ROOT / folder).rglob("*.py")):
        if "tests" in file.relative_to(ROOT).parts:
            continue
        source = file.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and MADE & {ast.unparse(each) for each in (node.func, *node.args)}:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", ast.unparse(node)


def test_every_limit_of_a_service_is_made_for_all_its_processes() -> None:
    made = dict(limits_made())
    assert len(made) >= len(MADE)
    assert [
        place for place, call in made.items() if "processes" not in call and "shared_by=shared_by" not in call
    ] == []


OF_ONE_ROOM = {"event_id", "fence", "redis_instance_id"}
OF_A_MOMENT = {"version", "at_ms", "last_ms", "bucket_ms", "assume_live_until_ms", "others_ms", "change_n", "tokens",
               "window:0", "window:1"}  # fmt: skip
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]


@pytest.mark.parametrize("room", [{}, {"lanes": LANES, "max_line": 7, "gate": {"let_through": ["/up"]}}])
async def test_an_opened_room_is_as_an_operator_leaves_it(
    database: Database, redis: Redis, room: dict[str, Any]
) -> None:
    file = EventFile.model_validate({
        "event_id": "by-operator", "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-03-05T19:30:00Z", "room": ROOM | room,
        "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 100}],
    })  # fmt: skip
    async with queue_service(database, redis, Inventory().client()) as queue:
        await queue.open("by-test", **room)
        await queue.state.rooms.apply(file, TEST)
        await queue.transition("open", "by-operator")
        by_test, by_operator = [await everything(queue, redis, name) for name in ("by-test", "by-operator")]
    assert by_test == by_operator


async def everything(queue: QueueService, redis: Redis, event_id: str) -> list[dict[str, Any]]:
    """The room in the database and in Redis, and its frame."""
    room = await queue.state.rooms.read(event_id)
    frame = await queue.state.gatekeeper.frame(event_id)
    in_redis = {name.decode(): value for name, value in (await redis.hgetall(redis_keys.room(event_id))).items()}
    frame_fields = without(dict(frame), OF_ONE_ROOM | OF_A_MOMENT)
    return [without(vars(room), OF_ONE_ROOM), without(in_redis, OF_A_MOMENT), frame_fields]


def without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


RULES = {
    "consecutive": "1 2 3 4", "odd": "1 3 5 7", "even": "2 4 6 8", "odd from the right": "7 5 3 1",
    "even from 102 from the left": "102 104 106 108", "consecutive from 0": "0 1 2 3",
    "consecutive from 101 from the right": "104 103 102 101",
}  # fmt: skip


def section(**fields: Any) -> SeatedSection:
    given = {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 2, "seats_per_row": 3, "price_minor": 1}
    return SeatedSection.model_validate(given | fields)


@pytest.mark.parametrize(("rule", "labels"), RULES.items())
def test_a_rule_numbers_seats_from_left_to_right(rule: str, labels: str) -> None:
    assert numbers(rule, 4) == tuple(labels.split())
    assert numbers(rule_of(labels.split()) or "", 4) == tuple(labels.split())


@given(st.sampled_from(["consecutive", "odd", "even"]), st.integers(0, 500_000), st.booleans(), st.integers(1, 60))
def test_what_a_rule_gives_is_described_by_a_rule(kind: str, half: int, from_right: bool, count: int) -> None:
    start = {"consecutive": half, "odd": 2 * half + 1, "even": 2 * half}[kind]
    labels = numbers(f"{kind} from {start}{' from the right' if from_right else ''}", count)
    assert numbers(rule_of(labels) or "", count) == labels
    assert len(set(labels)) == count


def test_other_labels_have_no_rule() -> None:
    assert [rule_of(labels) for labels in ([], ["1", "2", "4"], ["A", "B"], ["01", "02"], ["1", "1"])] == [None] * 5


def test_rows_and_seats_have_the_labels_of_the_file() -> None:
    labels = section(
        rows=["A", {"row": "AA", "seats": [1, "2b", "C"]}, 13], seats="odd from the right", seats_per_row=3
    ).labels
    assert labels.front(3) == [("A", ("5", "3", "1")), ("AA", ("1", "2b", "C")), ("13", ("5", "3", "1"))]
    assert (labels.seat(1, 2), labels.find("AA", "C"), labels.find("A", "5")) == (("AA", "C"), (1, 2), (0, 0))
    assert [labels.find(*seat) for seat in (("1", "1"), ("AA", "3"), ("a", "1"))] == [None] * 3
    counted = section().labels
    assert (counted.rows, counted.find("2", "3"), counted.find("02", "3")) == (("1", "2"), (1, 2), None)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a row twice": ({"rows": ["A", "B", "A"]}, "two rows are called A"),
    "a seat twice": ({"seats": [1, 2, 1]}, "two seats of row 1 are called 1"),
    "a seat of one row twice": ({"rows": ["A", {"row": "B", "seats": [1, 1, 2]}]}, "two seats of row B are called 1"),
    "a longer row": ({"rows": ["A", {"row": "B", "seats": [1, 2, 3, 4]}]}, "row B has 4 seats with a label, and"),
    "a shorter row": ({"seats": [1, 2]}, "a section of their own"),
    "a long label": ({"rows": ["A", "ROWNUMBER9"]}, "a label has 1 to 8 letters from a to z or digits"),
    "a label with a blank": ({"rows": ["A 1", "B"]}, "a label has 1 to 8 letters"),
    "a label with a hyphen": ({"seats": ["1-a", "2", "3"]}, "a label has 1 to 8 letters"),
    "a letter of another script": ({"rows": ["Ä", "B"]}, "letters from a to z"),
    "an empty label": ({"rows": ["", "B"]}, "a label has"),
    "a truth": ({"rows": [True, "B"]}, "a label has"),
    "a rule that is none": ({"seats": "odd from the middle"}, "consecutive, odd or even"),
    "an odd start of even seats": ({"seats": "even from 3"}, "3 is not even"),
    "a number": ({"seats": 5}, "or a list of labels"),
    "no row": ({"rows": []}, "at least 1"),
    "too many rows": ({"rows": [str(n) for n in range(1001)]}, "at most 1000"),
    "a level of no row": ({"rows": ["A", "B"], "price_levels": [{"name": "x", "rows": ["A", "C"], "price_minor": 1}]},
                          "there is no row C; the rows are from A to B"),
    "a level backwards": ({"rows": ["A", "B"], "price_levels": [{"name": "x", "rows": ["B", "A"], "price_minor": 1}]},
                          "from the front"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), WRONG.values(), ids=WRONG)
def test_labels_that_do_not_fit_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        section(**fields)
