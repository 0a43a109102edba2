"""Requests made from generated ones: parts of several put together, and one value of the body replaced.

schemathesis makes a hundred requests a second, and this a hundred thousand, so it uses each generated part many times.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import orjson

from proof.bad_input.generated.documents import Call

BAD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63 - 1, -(2**63), 1e308, 0.1, "", " ", "\x00", "a\x00b", "\ud83d\ude00", "\u202e",
    "'", '"',
    "%00", "../..", "{}", "null", "1" * 400, "x" * 5_000, [], {}, [None], [[[[[[]]]]]], {"": ""}, ["x"] * 200,
    "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "2030-02-30", "-0", "1e5", "١٢", "A-1-1", "GA1",
)  # fmt: skip
RAW_BODIES = (
    b"", b"null", b"[]", b"{", b'{"a":1}{"a":1}', b"\xff\xfe\x00", b'"\xed\xa0\x80"', b'{"a":NaN}', b'{"a":1e999}',
    b"[" * 20_000, b'{"a":' * 20_000, b'{"a":"' + b"\xc3\x28" * 100 + b'"}', b"\xef\xbb\xbf{}", b'{"a":1,"a":2}',
    b"1" * 5_000, b"%PDF-1.4", b"--x\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--x--",
)  # fmt: skip
TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
         "application/json; charset=utf-16", "", "a", "application/octet-stream")  # fmt: skip


def variations(pool: Sequence[Call], count: int, random: Random) -> Iterator[Call]:
    """So many requests out of these of one operation."""
    for _ in range(count):
        base, of_path, of_query, of_headers, of_body = (random.choice(pool) for _ in range(5))
        if of_path.path != base.path:
            of_path = base
        headers, body = dict(of_headers.headers), of_body.body
        kind = random.random()
        if kind < 0.5 and body:
            body = with_bad_value(body, random)
        elif kind < 0.55:
            body = random.choice(RAW_BODIES)
        elif kind < 0.6:
            headers["content-type"] = random.choice(TYPES)
        if body and "content-type" in of_body.headers:
            headers.setdefault("content-type", of_body.headers["content-type"])
        yield replace(
            base, path=of_path.path, values=of_path.values, query=of_query.query, headers=headers, body=body
        )  # fmt: skip


def with_bad_value(body: bytes, random: Random) -> bytes:
    """The body with the value at a random place replaced; other bytes than JSON get a random byte changed."""
    try:
        value = orjson.loads(body)
    except ValueError:
        at = random.randrange(len(body))
        return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
    places = list(_places(value))
    if not places:
        return _json(random.choice(BAD_VALUES))
    holder, key = random.choice(places)
    if random.random() < 0.1 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = random.choice(BAD_VALUES)
    return _json(value)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key at which something lies."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, a number beyond 64 bits
        return json.dumps(value).encode()
