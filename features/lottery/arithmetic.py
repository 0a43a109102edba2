"""The arithmetic of the lottery: a permutation from a seed and a public value, and a Merkle tree over the entrants.

A rank is computed when it is needed, here as in any other language; the order is not stored. `docs/use/lottery.md`
describes it in prose. Only the standard library is used.
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


class Permutation:
    """A permutation of 1 … `entrants_n`: entry number ↔ rank. Numbers above it are late entrants and keep their number.

    Alternating Feistel rounds over the smallest grid, repeated while the result lies outside (cycle walking). A round
    depends on half of a number only, so its values are one table of √n entries, computed once.
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
        """The rank that was drawn for this entry number."""
        return self._walked(entry, range(ROUNDS), 1)

    def entry(self, rank: int) -> int:
        """The entry number that was drawn for this rank."""
        return self._walked(rank, range(ROUNDS - 1, -1, -1), -1)

    def _walked(self, number: int, rounds: Iterable[int], sign: int) -> int:
        if not 1 <= number <= self.entrants_n:
            return number
        at, tables = number - 1, self._tables
        while True:
            row, column = divmod(at, self._columns)
            for which in rounds:
                if which % 2:
                    column = (column + sign * tables[which][row]) % self._columns
                else:
                    row = (row + sign * tables[which][column]) % self._rows
            at = row * self._columns + column
            if at < self.entrants_n:
                return at + 1


def _round(key: bytes, number: int, half: int) -> int:
    return int.from_bytes(hmac.digest(key, b"%d/%d" % (number, half), "sha256"), "big")


@lru_cache(maxsize=64)
def permutation(entrants_n: int, key: bytes) -> Permutation:
    """The permutation; the most recently used are cached with their tables."""
    return Permutation(entrants_n, key)


def commitment(seed: bytes) -> str:
    """The hash of the seed, published before anybody can enter."""
    return hashlib.sha256(seed).hexdigest()


def draw_key(
    seed: bytes, public_value: str, *, event_id: str, epoch: int, lane: int, entrants_n: int, entrants_hash: str
) -> bytes:
    """The key of one lane's permutation: an HMAC with the secret seed over everything public before the draw."""
    message = (ALGORITHM, event_id, epoch, lane, entrants_n, entrants_hash, public_value)
    return hmac.digest(seed, "\n".join(map(str, message)).encode(), "sha256")


# -- the entrants ------------------------------------------------------------------------------------------------------


def receipt(blind: bytes, lane: int, entry: int, holder: str) -> str:
    """A commitment to the holder of an entry number; without the blind it reveals nothing about them."""
    return hmac.new(blind, f"{lane}/{entry}/{holder}".encode(), "sha256").hexdigest()


def leaf(lane: int, entry: int, of: str | None) -> bytes:
    """The leaf of one entry number, with its receipt; without one if nobody has the number."""
    return hashlib.sha256(LEAF + f"{lane}/{entry}/{of or ''}".encode()).digest()


def root(nodes: Sequence[bytes]) -> bytes:
    """The Merkle root over all leaves in order. A node without a sibling moves up unchanged."""
    while len(nodes) > 1:
        nodes = _above(nodes)
    return nodes[0] if nodes else hashlib.sha256(LEAF).digest()


def path(nodes: Sequence[bytes], at: int) -> list[str]:
    """The siblings on the way from node `at` to the root, lowest first."""
    steps = []
    while len(nodes) > 1:
        if at ^ 1 < len(nodes):
            steps.append(nodes[at ^ 1].hex())
        nodes, at = _above(nodes), at // 2
    return steps


def climb(node: bytes, at: int, count: int, steps: Iterable[str]) -> str | None:
    """The root that results from node `at` of `count` and its path; `None` if the path has the wrong length."""
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
