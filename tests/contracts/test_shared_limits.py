"""What is counted against abuse in the memory of a process holds over all processes: together they allow no more than
one does, but for the rounding of each part, and each lets somebody in.
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
from shared.errors.problems import BadCredential, TooManyRequests, TooManyWrongCodes
from shared.security.auth import WRONG_KEYS_PER_MINUTE, WrongKeys
from shared.security.limits import ADDRESS_AT_ONCE, AddressGuessLimiter, AddressHolds, FanLimit, Guess
from shared.security.tokens import development_keys

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
