"""Every pattern of the API documents has words for who typed another value."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from shared.contracts.fields import WANTED
from shared.features import package_of
from shared.routes import SERVICES


def patterns(node: Any) -> Iterator[str]:
    """All patterns of fields and parameters below this part of an OpenAPI document."""
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from patterns(each)


@pytest.mark.parametrize("service", SERVICES)
def test_every_documented_pattern_has_words(service: str) -> None:
    """A new pattern needs words in `WANTED`."""
    documents = importlib.import_module(f"{package_of(service)}.app").create_app().openapi()
    assert set(patterns(documents)) <= WANTED.keys()
