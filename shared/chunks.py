"""Anything in lists of at most so many, for callers that send or read a bounded part at a time."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """In their order; the last may be shorter."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
