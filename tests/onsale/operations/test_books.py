"""The books of a sale are compared until its last payments are through."""

import pytest

from onsale.simulate import books


async def test_what_is_wrong_for_a_moment_is_not_wrong_and_what_stays_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "READ_INTERVAL_S", 0.01)
    found = [["a charge is missing"], ["a charge is missing"], [], ["another"], []]

    async def read() -> list[str]:
        return found.pop(0) if len(found) > 1 else found[0]

    assert await books.what_stays_wrong(read, settle_s=5, quiet_s=0.05) == []
    assert found == [[]], "it was read until nothing had been wrong for a while"
    found[:] = [["a charge is missing"]]
    assert await books.what_stays_wrong(read, settle_s=0.1, quiet_s=0.05) == ["a charge is missing"]
