"""The encoding of seats: what is encoded is decoded to the same, in the promised sizes, and nothing else decodes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.hall import seat_codes

CODES = st.binary(max_size=300).map(lambda data: bytes(byte & 3 for byte in data))
TWO_STATES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=400).map(
    lambda pairs: (bytes(one for one, _ in pairs), bytes(other for _, other in pairs))
)


@given(CODES, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_state_comes_back_as_it_was(codes: bytes, epoch: int, version: int) -> None:
    data = seat_codes.encode_state(epoch, version, codes)
    assert seat_codes.decode_state(data) == (epoch, version, codes)
    assert len(data) == 20 + (len(codes) + 3) // 4


@given(TWO_STATES)
def test_changes_lead_from_one_state_to_the_other(states: tuple[bytes, bytes]) -> None:
    before, after = states
    changed = seat_codes.differing(before, after)
    assert changed == [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert seat_codes.apply_changes(before, seat_codes.encode_changes(after, changed)) == after


@given(CODES, st.data())
def test_changes_may_name_seats_that_are_the_same(codes: bytes, data: st.DataObject) -> None:
    seats = sorted(data.draw(st.sets(st.integers(0, len(codes) - 1), max_size=len(codes)))) if codes else []
    assert seat_codes.apply_changes(codes, seat_codes.encode_changes(codes, seats)) == codes


@pytest.mark.parametrize("gap", [0, 31, 32, 4095, 4096, 99_999])
def test_a_gap_of_any_length_is_bridged(gap: int) -> None:
    before = bytes(100_000)
    after = before[:gap] + b"\2" + before[gap + 1 :]
    assert seat_codes.apply_changes(before, seat_codes.encode_changes(after, [gap])) == after


def test_the_layout_of_bits_is_the_documented_one() -> None:
    codes = seat_codes.from_marks(b".hs|x.|h")
    assert codes == bytes([0, 1, 2, 3, 0, 1])
    assert seat_codes.pack(codes) == bytes([0b11_10_01_00, 0b01_00])
    assert seat_codes.encode_state(7, 9, codes)[:20] == b"OSS1\0\0\0\7" + b"\0" * 7 + b"\x09" + b"\0\0\0\6"
    assert seat_codes.encode_changes(codes, [1, 3]) == bytes([1 << 2 | 1, 1 << 2 | 3])


@pytest.mark.parametrize(("changes", "bytes_max"), [(1, 3), (10, 24), (50, 100), (200, 360)])
def test_a_window_of_twenty_thousand_seats_is_small(changes: int, bytes_max: int) -> None:
    held = set(random.Random(1).sample(range(20_000), changes))
    after = bytes(seat in held for seat in range(20_000))
    assert len(seat_codes.encode_changes(after, seat_codes.differing(bytes(20_000), after))) <= bytes_max
    assert len(seat_codes.pack(after)) == 5_000


@pytest.mark.parametrize("data", [b"", b"OSS1", b"OSS2" + bytes(16), b"OSS1" + bytes(15) + b"\5" + b"\0"])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|begins|seats"):
        seat_codes.decode_state(data)


@pytest.mark.parametrize("data", [b"\x80", b"\x10", b"\0\0\0\0\0"])
def test_what_are_no_changes_of_the_hall_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|no seat"):
        seat_codes.apply_changes(bytes(4), data)
