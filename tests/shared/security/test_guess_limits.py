"""Guesses sent at once count like guesses one after the other, and right codes are never refused."""

import asyncio
from collections import Counter

import pytest

from shared.errors.problems import Overloaded, TooManyWrongCodes
from shared.security import limits
from shared.security.limits import GuessLimiter


async def look_up(limiter: GuessLimiter, seen: Counter[str], code: str, key: str = "fan") -> str:
    try:
        async with limiter.guess(key) as guess:
            seen[code] += 1
            await asyncio.sleep(0.001)
            guess.wrong = code != "right"
    except TooManyWrongCodes:
        return "limited"
    return "wrong" if guess.wrong else "right"


async def test_two_hundred_guesses_at_once_are_looked_up_to_the_limit_only() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    answers = await asyncio.gather(*(look_up(limiter, seen, f"no-{n}") for n in range(200)))
    assert seen.total() == 10
    assert Counter(answers) == {"wrong": 10, "limited": 190}
    assert await look_up(limiter, seen, "right") == "limited"
    assert await look_up(limiter, seen, "right", key="another fan") == "right"


async def test_right_codes_sent_at_once_are_all_looked_up() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    assert set(await asyncio.gather(*(look_up(limiter, seen, "right") for _ in range(300)))) == {"right"}
    answers = await asyncio.gather(*(look_up(limiter, seen, f"no-{n}") for n in range(20)))
    assert Counter(answers) == {"wrong": 10, "limited": 10}, "their tokens came back, once"


async def test_wrong_codes_among_right_ones_use_up_the_tokens() -> None:
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    codes = ["right" if n % 2 else f"no-{n}" for n in range(200)]
    answers = Counter(await asyncio.gather(*(look_up(limiter, seen, code) for code in codes)))
    assert answers["wrong"] == 10
    assert not limiter._under_way
    assert not limiter._waiting


async def test_a_look_up_that_is_cancelled_counts_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_MAX", 20)
    limiter, seen = GuessLimiter(per_s=0.001, at_once=10), Counter[str]()
    guesses = [asyncio.create_task(look_up(limiter, seen, "right")) for _ in range(31)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await guesses.pop()
    for guess in guesses[5:]:
        guess.cancel()
    answers = await asyncio.gather(*guesses, return_exceptions=True)
    assert Counter(map(str, answers)) == {"right": 5, "": 25}
    assert not limiter._under_way
    assert not limiter._waiting
    assert Counter(await asyncio.gather(*(look_up(limiter, seen, "no") for _ in range(9)))) == {
        "wrong": 5,
        "limited": 4,
    }
