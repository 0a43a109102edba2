"""The states of many seats in few bytes: two bits a seat, and changes as numbers of variable length; and the frame by
which inventory publishes them.

In memory a hall's state is one byte a seat, in map order: 0 free, 1 held, 2 sold, 3 not for sale. On the wire four
seats share a byte, the first in its lowest bits. A change is the number `gap << 2 | state`, where `gap` counts the
seats between it and the change before. It is written in groups of seven bits, lowest first; every group but the last
has the eighth bit set.
"""

import re
import struct
from collections.abc import Iterable

from shared.contracts.frames import Frame

FREE, HELD, SOLD, CLOSED = range(4)
HEADER = struct.Struct(">4sIQI")  # magic, epoch, version, number of seats
MAGIC = b"OSS1"
_CODES = bytes.maketrans(b".hsx", bytes([FREE, HELD, SOLD, CLOSED]))
_not_zero = re.compile(rb"[^\0]")


def from_marks(marks: bytes) -> bytes:
    """The states of a section's map: its marks without the ends of its rows."""
    return marks.translate(_CODES, b"|")


def pack(codes: bytes) -> bytes:
    """Two bits a seat; the last byte is filled with zeros."""
    size = -(-len(codes) // 4)
    codes = codes.ljust(4 * size, b"\0")
    packed = 0
    for n in range(4):
        packed |= int.from_bytes(codes[n::4]) << 2 * n
    return packed.to_bytes(size)


def unpack(packed: bytes, seats: int) -> bytes:
    """The states of so many seats. Raises `ValueError` if that is not what was packed."""
    size = len(packed)
    if size != -(-seats // 4):
        raise ValueError(f"{seats} seats are not {size} bytes")
    number, low = int.from_bytes(packed), int.from_bytes(b"\3" * size)
    codes = bytearray(4 * size)
    for n in range(4):
        codes[n::4] = (number >> 2 * n & low).to_bytes(size)
    return bytes(codes[:seats])


def differing(one: bytes, other: bytes) -> list[int]:
    """The seats that differ between two states of the same hall, in map order."""
    difference = int.from_bytes(one) ^ int.from_bytes(other)
    return [match.start() for match in _not_zero.finditer(difference.to_bytes(len(one)))]


def encode_changes(codes: bytes, seats: Iterable[int]) -> bytes:
    """The states of these seats, which are in map order."""
    data, following = bytearray(), 0
    for seat in seats:
        number = seat - following << 2 | codes[seat]
        following = seat + 1
        while number > 0x7F:
            data.append(number & 0x7F | 0x80)
            number >>= 7
        data.append(number)
    return bytes(data)


def apply_changes(codes: bytes, data: bytes) -> bytes:
    """The states after these changes. Raises `ValueError` if they are not changes of this hall."""
    after, seat, number, shift = bytearray(codes), -1, 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            seat += (number >> 2) + 1
            if seat >= len(after):
                raise ValueError(f"there is no seat {seat}")
            after[seat], number, shift = number & 3, 0, 0
    if shift:
        raise ValueError("the last change is cut off")
    return bytes(after)


def encode_state(epoch: int, version: int, codes: bytes) -> bytes:
    """A whole state, as `GET /events/{event_id}/map/state` answers it."""
    return HEADER.pack(MAGIC, epoch, version, len(codes)) + pack(codes)


def decode_state(data: bytes) -> tuple[int, int, bytes]:
    """Epoch, version and states. Raises `ValueError`."""
    if len(data) < HEADER.size:
        raise ValueError("shorter than its header")
    magic, epoch, version, seats = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"begins with {magic!r}")
    return epoch, version, unpack(data[HEADER.size :], seats)


# -- what inventory publishes ------------------------------------------------------------------------------------------

SEATS_WATCHED_S = 15  # a process that shows seats says so more often than this


def seats_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:seats"


def seats_watched_key(event_id: str) -> str:
    """Exists while a stream shows the seats of this event: only then they are published."""
    return f"show:{{{event_id}}}:seats:watched"


class SeatsFrame(Frame):
    """The states of all seats of an event. `sections` are those with seats, and how many, in map order; `seats` is
    `features.hall.seat_codes.pack` of all, in base64. A version names one state in every process.
    """

    sections: list[tuple[str, int]]
    seats: str
