"""Parts a test's fields into a service's tuning and its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def parted(tuning: type[T], given: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """The tuning with those of the given fields that are its own, and the others, which are settings."""
    own = {field.name for field in fields(tuning)}  # type: ignore[arg-type]
    return tuning(**{n: v for n, v in given.items() if n in own}), {n: v for n, v in given.items() if n not in own}
