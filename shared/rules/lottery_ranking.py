"""The arithmetic of the lottery: a permutation drawn from a seed and a public value, and a hash over who took part.

Whoever needs a rank computes it, here as in any other language: nothing of the order is stored. `docs/lottery.md` says
the same in prose. Only the standard library is needed.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isqrt

ALGORITHM = "onsale-lottery-1"
ROUNDS = 16
CHUNK = 4096  # leaves under one branch of the entrants' tree: a power of two
LEAF, NODE = b"\0", b"\1"


class Order:
    """A permutation of 1 … `entrants_n`: entry number ↔ rank. Numbers past it are late comers and keep theirs.

    Alternating Feistel rounds over a grid just large enough, walked again while the result lies outside. A round only
    looks at half of a number, so its values are one table of √n entries, computed once.
    """

    def __init__(self, entrants_n: int, key: bytes) -> None:
        self.entrants_n = entrants_n
        self._rows = isqrt(max(0, entrants_n - 1)) + 1
        self._columns = max(1, -(-entrants_n // self._rows))
        sizes = (self._columns, self._rows)
        self._tables = [
            [_round(key, number, half) % sizes[1 - number % 2] for half in range(sizes[number % 2])]
            for number in range(ROUNDS)
        ]

    def rank(self, entry: int) -> int:
        """The place in the line that this entry number was drawn to."""
        if not 1 <= entry <= self.entrants_n:
            return entry
        at = entry - 1
        while True:
            row, column = divmod(at, self._columns)
            for number, table in enumerate(self._tables):
                if number % 2:
                    column = (column + table[row]) % self._columns
                else:
                    row = (row + table[column]) % self._rows
            at = row * self._columns + column
            if at < self.entrants_n:
                return at + 1

    def entry(self, rank: int) -> int:
        """Whose place it is: the entry number that was drawn to this rank."""
        if not 1 <= rank <= self.entrants_n:
            return rank
        at = rank - 1
        while True:
            row, column = divmod(at, self._columns)
            for number in range(ROUNDS - 1, -1, -1):
                if number % 2:
                    column = (column - self._tables[number][row]) % self._columns
                else:
                    row = (row - self._tables[number][column]) % self._rows
            at = row * self._columns + column
            if at < self.entrants_n:
                return at + 1


def _round(key: bytes, number: int, half: int) -> int:
    return int.from_bytes(hmac.digest(key, b"%d/%d" % (number, half), "sha256"), "big")


@lru_cache(maxsize=64)
def order(entrants_n: int, key: bytes) -> Order:
    """The permutation, with its tables kept for whoever asks next."""
    return Order(entrants_n, key)


def commitment(seed: bytes) -> str:
    """What is published before anybody may enter."""
    return hashlib.sha256(seed).hexdigest()


def draw_key(
    seed: bytes, public_value: str, *, event_id: str, epoch: int, lane: int, entrants_n: int, entrants_hash: str
) -> bytes:
    """What the permutation of one lane is drawn with: the secret seed over everything that was public before."""
    told = (ALGORITHM, event_id, epoch, lane, entrants_n, entrants_hash, public_value)
    return hmac.digest(seed, "\n".join(map(str, told)).encode(), "sha256")


# -- who took part -----------------------------------------------------------------------------------------------------


def receipt(blind: bytes, lane: int, entry: int, holder: str) -> str:
    """Stands for the holder of an entry number; says nothing about them to whoever has not the blind."""
    return hmac.new(blind, f"{lane}/{entry}/{holder}".encode(), "sha256").hexdigest()


def leaf(lane: int, entry: int, of: str | None) -> bytes:
    """One entry number with its receipt, or without: a number that nobody has."""
    return hashlib.sha256(LEAF + f"{lane}/{entry}/{of or ''}".encode()).digest()


def root(nodes: Sequence[bytes]) -> bytes:
    """The hash over all of them, in order. One without a neighbour moves up as it is."""
    while len(nodes) > 1:
        nodes = _above(nodes)
    return nodes[0] if nodes else hashlib.sha256(LEAF).digest()


def path(nodes: Sequence[bytes], at: int) -> list[str]:
    """The neighbours that lead from node `at` to the root, lowest first."""
    steps = []
    while len(nodes) > 1:
        if at ^ 1 < len(nodes):
            steps.append(nodes[at ^ 1].hex())
        nodes, at = _above(nodes), at // 2
    return steps


def climb(node: bytes, at: int, count: int, steps: Iterable[str]) -> str | None:
    """The root that a path leads to from node `at` of `count`; `None` if it does not fit."""
    left = list(steps)
    while count > 1:
        if at ^ 1 < count:
            if not left:
                return None
            other = bytes.fromhex(left.pop(0))
            node = hashlib.sha256(NODE + (other + node if at & 1 else node + other)).digest()
        at, count = at // 2, (count + 1) // 2
    return None if left else node.hex()


def _above(nodes: Sequence[bytes]) -> list[bytes]:
    pairs = [hashlib.sha256(NODE + nodes[i] + nodes[i + 1]).digest() for i in range(0, len(nodes) - 1, 2)]
    return [*pairs, nodes[-1]] if len(nodes) % 2 else pairs
