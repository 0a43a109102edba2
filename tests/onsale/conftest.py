"""What tests of the sandbox ask for."""

from collections.abc import AsyncIterator

import pytest

from tests.onsale.sandbox_fan import Fan, sandbox


@pytest.fixture
async def fan() -> AsyncIterator[Fan]:
    async with sandbox() as fan:
        yield fan
