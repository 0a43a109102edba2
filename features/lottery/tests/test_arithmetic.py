"""The ranking of the lottery: a uniform permutation that neither an operator nor a fan can influence."""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.lottery import arithmetic
from features.lottery.arithmetic import Permutation, climb, commitment, draw_key, leaf, path, root

KEYS = st.binary(min_size=32, max_size=32)
VALUES = st.text(min_size=1, max_size=40)


def key(number: int) -> bytes:
    return hashlib.sha256(b"test %d" % number).digest()


def draw(seed: bytes, value: str, entrants_n: int, entrants_hash: str = "00") -> Permutation:
    secret = draw_key(seed, value, event_id="show", epoch=1, lane=0, entrants_n=entrants_n, entrants_hash=entrants_hash)
    return Permutation(entrants_n, secret)


# -- a permutation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entrants_n", [*range(10), 97, 256, 1000, pytest.param(10_007, marks=pytest.mark.proof)])
def test_every_entrant_gets_one_rank_and_every_rank_one_entrant(entrants_n: int):
    order = Permutation(entrants_n, key(entrants_n))
    ranks = [order.rank(entry) for entry in range(1, entrants_n + 1)]
    assert sorted(ranks) == list(range(1, entrants_n + 1))
    assert [order.entry(rank) for rank in ranks] == list(range(1, entrants_n + 1))


@given(KEYS, st.integers(1, 50_000), st.data())
def test_a_rank_leads_back_to_its_entry(secret: bytes, entrants_n: int, data: st.DataObject):
    order = Permutation(entrants_n, secret)
    entry = data.draw(st.integers(1, entrants_n))
    assert 1 <= order.rank(entry) <= entrants_n
    assert order.entry(order.rank(entry)) == entry


@given(KEYS, st.integers(0, 50_000), st.integers(1, 10**9))
def test_a_late_fan_never_gets_a_rank_among_the_entrants(secret: bytes, entrants_n: int, later: int):
    order = Permutation(entrants_n, secret)
    assert order.rank(entrants_n + later) == entrants_n + later == order.entry(entrants_n + later)


# -- no influence -----------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(KEYS, VALUES, VALUES)
def test_another_public_value_gives_another_order(seed: bytes, value: str, other: str):
    one, two = draw(seed, value, 1000), draw(seed, other, 1000)
    same = sum(one.rank(entry) == two.rank(entry) for entry in range(1, 1001))
    assert same == 1000 if value == other else same < 20, "chance leaves one entry in place on average"


@settings(max_examples=25)
@given(KEYS, KEYS, VALUES)
def test_the_public_value_alone_does_not_reveal_the_order(seed: bytes, other: bytes, value: str):
    """The value is public, but the seed is not."""
    if seed != other:
        one, two = draw(seed, value, 1000), draw(other, value, 1000)
        assert sum(one.rank(entry) == two.rank(entry) for entry in range(1, 1001)) < 20
        assert commitment(seed) != commitment(other)


def test_another_number_or_list_of_entrants_gives_another_order():
    base = draw(key(1), "v", 1000)
    more, others = draw(key(1), "v", 1001), draw(key(1), "v", 1000, "ff")
    for other in (more, others):
        assert sum(base.rank(entry) == other.rank(entry) for entry in range(1, 1001)) < 20


def test_a_seed_chosen_by_the_operator_is_no_advantage_once_the_value_is_published():
    """An operator picks the seed, out of 200, that favours entry 1 under the value they expect; another value comes."""
    seeds = [key(n) for n in range(200)]
    best = min(seeds, key=lambda seed: draw(seed, "the expected value", 1000).rank(1))
    assert draw(best, "the expected value", 1000).rank(1) < 50
    ranks = [draw(best, f"the published value {n}", 1000).rank(1) for n in range(400)]
    assert abs(sum(ranks) / 400 - 500.5) < 4 * 288.7 / 20


@settings(max_examples=25)
@given(KEYS, st.integers(2, 4000), st.data())
def test_an_early_entry_number_is_no_advantage(seed: bytes, entrants_n: int, data: st.DataObject):
    """Over the possible values, of two entries either is ahead of the other."""
    first, last = sorted(data.draw(st.sets(st.integers(1, entrants_n), min_size=2, max_size=2)))
    orders = [draw(seed, f"value {n}", entrants_n) for n in range(20)]
    assert 0 < sum(order.rank(first) < order.rank(last) for order in orders) < 20


# -- uniform -----------------------------------------------------------------------------------------------------------

FAIR_BELOW = 4.0  # standard deviations; the seeds are fixed, so the result is always the same
Rank = Callable[[int, bytes, int], int]


def fair(entrants_n: int, secret: bytes, entry: int) -> int:
    return Permutation(entrants_n, secret).rank(entry)


def biased(entrants_n: int, secret: bytes, entry: int) -> int:
    """A permutation that keeps the order of joining in every tenth draw."""
    return entry if secret[0] % 10 == 0 else fair(entrants_n, secret, entry)


def rotated(entrants_n: int, secret: bytes, entry: int) -> int:
    """Every rank is equally likely for every entry, but neighbouring entries stay neighbours."""
    return (entry + int.from_bytes(secret, "big")) % entrants_n + 1


def chi_square(counts: list[int]) -> float:
    """The distance from uniform counts, in standard deviations."""
    expected, free = sum(counts) / len(counts), len(counts) - 1
    return (sum((count - expected) ** 2 / expected for count in counts) - free) / math.sqrt(2 * free)


def tenths_of_one(rank: Rank, entry: int) -> list[int]:
    """How often each tenth of the line falls to one entry."""
    found = Counter((rank(100, key(n), entry) - 1) // 10 for n in range(1500))
    return [found[tenth] for tenth in range(10)]


def gaps_of_two(rank: Rank) -> list[int]:
    """How often each distance, modulo the 11 ranks, separates two neighbouring entries."""
    found = Counter((rank(11, key(n), 5) - rank(11, key(n), 4)) % 11 for n in range(1500))
    return [found[gap] for gap in range(1, 11)]


def whole_orders(rank: Rank) -> list[int]:
    """How often each order of five comes."""
    found = Counter(tuple(rank(5, key(n), entry) for entry in range(1, 6)) for n in range(2400))
    return [found[order] for order in itertools.permutations(range(1, 6))]


@pytest.mark.parametrize("entry", [1, 50, 100])
def test_every_rank_is_equally_likely_for_every_entry(entry: int):
    assert chi_square(tenths_of_one(fair, entry)) < FAIR_BELOW


def test_neighbouring_entries_get_independent_ranks():
    assert chi_square(gaps_of_two(fair)) < FAIR_BELOW


def test_every_order_is_equally_likely():
    assert chi_square(whole_orders(fair)) < FAIR_BELOW


def test_these_tests_find_a_permutation_that_is_not_uniform(monkeypatch: pytest.MonkeyPatch):
    assert chi_square(tenths_of_one(biased, 1)) > FAIR_BELOW
    assert chi_square(gaps_of_two(rotated)) > FAIR_BELOW
    monkeypatch.setattr(arithmetic, "ROUNDS", 4)
    assert chi_square(whole_orders(fair)) > FAIR_BELOW, "four rounds are too few for few entrants"


# -- the entrants ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.data())
def test_a_proof_leads_to_the_root_hash_from_its_own_entry_only(count: int, data: st.DataObject):
    leaves = [leaf(0, entry, f"{entry:064x}") for entry in range(1, count + 1)]
    at, other = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    top, steps = root(leaves).hex(), path(leaves, at)
    assert climb(leaves[at], at, count, steps) == top
    assert (climb(leaves[other], other, count, steps) == top) == (other == at)
    assert climb(leaves[at], at, count, [*steps, "00" * 32]) is None
    assert not steps or climb(leaves[at], at, count, steps[:-1]) is None


@given(st.integers(1, 40), st.data())
def test_an_added_removed_or_replaced_entrant_changes_the_root_hash(count: int, data: st.DataObject):
    leaves = [leaf(0, entry, f"{entry:064x}") for entry in range(1, count + 1)]
    at = data.draw(st.integers(0, count - 1))
    without = [*leaves[:at], leaf(0, at + 1, None), *leaves[at + 1 :]]
    swapped = [*leaves[:at], leaf(0, at + 1, "ff" * 32), *leaves[at + 1 :]]
    assert len({root(nodes) for nodes in (leaves, without, swapped, [*leaves, leaf(0, count + 1, "ee" * 32)])}) == 4
