"""Known forms of malformed, ambiguous and oversized HTTP requests, and random changes of them.

Every form ends with a plain request, after which the server should close the connection. `HIDDEN` is the target of
requests that lie in the body of another: no server may answer one of them.
"""

from collections.abc import Mapping
from random import Random

HEAD = b"Host: a\r\n"
TARGET, HIDDEN, LAST = (b"/events/%b/queue/status" % name for name in (b"shown", b"hidden", b"last"))
GET, POST = b"GET " + TARGET + b" HTTP/1.1\r\n" + HEAD, b"POST " + TARGET + b" HTTP/1.1\r\n" + HEAD
SMUGGLED = b"GET " + HIDDEN + b" HTTP/1.1\r\n" + HEAD + b"\r\n"
FINAL = b"GET " + LAST + b" HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n"
TE, END = b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"


def _post(fields: bytes, body: bytes) -> bytes:
    return POST + fields + b"\r\n" + body


def _length(body: bytes, value: bytes | None = None) -> bytes:
    return _post(b"Content-Length: " + (value if value is not None else b"%d" % len(body)) + b"\r\n", body)


def _chunked(*parts: bytes) -> bytes:
    return _post(TE, b"".join(parts))


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


SMUGGLING: dict[str, bytes] = {
    "length and chunks": _post(b"Content-Length: %d\r\n" % (len(END) + len(SMUGGLED)) + TE, END + SMUGGLED),
    "chunks and length": _post(TE + b"Content-Length: 4\r\n", _chunk(SMUGGLED) + END),
    "two lengths": _post(b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(SMUGGLED), SMUGGLED),
    "the same length twice": _post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc"),
    "a list of lengths": _length(SMUGGLED, b"0, %d" % len(SMUGGLED)),
    "a length with a plus": _length(SMUGGLED, b"+%d" % len(SMUGGLED)),
    "a length with a minus": _length(SMUGGLED, b"-1"),
    "a length in hex": _length(SMUGGLED, b"0x%x" % len(SMUGGLED)),
    "a length with a space inside": _length(SMUGGLED, b"1 0"),
    "a length of letters": _length(SMUGGLED, b"ten"),
    "an empty length": _length(SMUGGLED, b""),
    "a length beyond 64 bits": _length(b"", b"18446744073709551617"),
    "a length of underscores": _length(SMUGGLED, b"1_0"),
    "a length with leading zeros": _length(b"abc", b"0003"),
    "a coding with a tab": _post(b"Transfer-Encoding:\tchunked\r\n", END + SMUGGLED),
    "a coding with a vertical tab": _post(b"Transfer-Encoding: \x0bchunked\r\n", END + SMUGGLED),
    "space before the colon": _post(b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", END + SMUGGLED),
    "space before the length's colon": _post(b"Content-Length : %d\r\n" % len(SMUGGLED), SMUGGLED),
    "an unknown coding": _post(b"Transfer-Encoding: xchunked\r\n", END + SMUGGLED),
    "chunked and identity": _post(b"Transfer-Encoding: chunked, identity\r\n", END + SMUGGLED),
    "identity and chunked": _post(b"Transfer-Encoding: identity, chunked\r\n", _chunk(b"abc") + END),
    "gzip and chunked": _post(b"Transfer-Encoding: gzip, chunked\r\n", _chunk(b"abc") + END),
    "chunked twice": _post(TE + TE, _chunk(b"abc") + END + SMUGGLED),
    "two codings": _post(b"Transfer-Encoding: identity\r\n" + TE, END + SMUGGLED),
    "a quoted coding": _post(b'Transfer-Encoding: "chunked"\r\n', END + SMUGGLED),
    "a coding with parameters": _post(b"Transfer-Encoding: chunked;a=b\r\n", END + SMUGGLED),
    "a coding in capitals": _post(b"TRANSFER-ENCODING: CHUNKED\r\n", _chunk(b"abc") + END),
    "a folded coding": _post(b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n", END + SMUGGLED),
    "a coding with a bare CR": _post(b"X: y\rTransfer-Encoding: chunked\r\n", END + SMUGGLED),
    "a coding behind a NUL": _post(b"X: \x00\r\nTransfer-Encoding: chunked\r\n", END + SMUGGLED),
    "a coding in HTTP/1.0": _post(TE, END + SMUGGLED).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "a coding on GET": GET + TE + b"\r\n" + _chunk(SMUGGLED) + END,
    "a length on GET": GET + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "lines end with LF": _length(SMUGGLED).replace(b"\r\n\r\n", b"\n\n", 1),
    "one line ends with LF": _post(b"X: y\nContent-Length: 5\r\n", b"abcde"),
    "lines end with CR": GET.replace(b"\r\n", b"\r") + b"\r\r" + SMUGGLED,
    "a folded line": GET + b"X: y\r\n z\r\n\r\n",
    "the first line is folded": b"GET " + TARGET + b" HTTP/1.1\r\n Host: a\r\n" + HEAD + b"\r\n",
    "a line without colon": GET + b"nothing\r\n\r\n",
    "a name of nothing": GET + b": y\r\n\r\n",
    "a name with a NUL": GET + b"X\x00Y: z\r\n\r\n",
    "a value with a NUL": GET + b"X: y\x00z\r\n\r\n",
    "a value with a DEL": GET + b"X: y\x7fz\r\n\r\n",
    "a name beyond ASCII": GET + "X-É: y\r\n\r\n".encode(),
    "a size of chunks overflows": _chunked(b"ffffffffffffffff1\r\n", b"a", END, SMUGGLED),
    "a size of chunks wraps": _chunked(b"10000000000000000\r\n", END, SMUGGLED),
    "a size of chunks with 0x": _chunked(b"0x3\r\nabc\r\n", END, SMUGGLED),
    "a size of chunks with minus": _chunked(b"-1\r\nabc\r\n", END, SMUGGLED),
    "a size of chunks with space": _chunked(b"3 \r\nabc\r\n", END),
    "a chunk without a size": _chunked(b"\r\nabc\r\n", END, SMUGGLED),
    "a chunk longer than it says": _chunked(b"2\r\nabc\r\n", END, SMUGGLED),
    "a chunk shorter than it says": _chunked(b"5\r\nabc\r\n", END, SMUGGLED),
    "a chunk's size ends with LF": _chunked(b"3\nabc\r\n", END, SMUGGLED),
    "a chunk ends with LF": _chunked(b"3\r\nabc\n", END, SMUGGLED),
    "a chunk's extension": _chunked(b"3;a=b\r\nabc\r\n", END),
    "a chunk's extension with LF": _chunked(b"3;a\n;b\r\nabc\r\n", END, SMUGGLED),
    "a chunk's extension with CR": _chunked(b"3;a\rX\r\nabc\r\n", END, SMUGGLED),
    "a chunk's quoted extension": _chunked(b'3;a="\r\nabc\r\n0\r\n\r\n"\r\nabc\r\n', END, SMUGGLED),
    "a hundred kilobytes of extension": _chunked(b"3;" + b"a" * 100_000 + b"\r\nabc\r\n", END),
    "the last chunk has many zeros": _chunked(b"3\r\nabc\r\n", b"0000\r\n\r\n"),
    "trailers": _chunked(b"3\r\nabc\r\n", b"0\r\nContent-Length: 9\r\nHost: b\r\n\r\n"),
    "a trailer without colon": _chunked(b"3\r\nabc\r\n", b"0\r\nnothing\r\n\r\n", SMUGGLED),
    "garbage after the body": _length(b"abc") + b"xyz",
    "a body for GET without length": GET + b"\r\n" + b"a=b",
}  # fmt: skip
OTHER: dict[str, bytes] = {
    "a plain request": GET + b"\r\n",
    "two plain requests": (GET + b"\r\n") * 2,
    "fifty plain requests": (GET + b"\r\n") * 50,
    "a body": _length(b"abc"), "chunks": _chunked(_chunk(b"abc"), _chunk(b"d" * 300), END),
    "HEAD": GET.replace(b"GET", b"HEAD") + b"\r\n", "an unknown method": GET.replace(b"GET", b"BREW") + b"\r\n",
    "a method in small letters": GET.replace(b"GET", b"get") + b"\r\n",
    "TRACE": GET.replace(b"GET", b"TRACE") + b"\r\n", "CONNECT": b"CONNECT a:80 HTTP/1.1\r\n" + HEAD + b"\r\n",
    "the absolute form": b"GET http://a" + TARGET + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
    "the absolute form of another host": b"GET http://b" + TARGET + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
    "the asterisk": b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n",
    "GET of an asterisk": b"GET * HTTP/1.1\r\n" + HEAD + b"\r\n",
    "HTTP/0.9": b"GET " + TARGET + b"\r\n", "HTTP/1.0": GET.replace(b"1.1", b"1.0") + b"\r\n",
    "HTTP/1.2": GET.replace(b"1.1", b"1.2") + b"\r\n", "HTTP/2.0": GET.replace(b"1.1", b"2.0") + b"\r\n",
    "HTTP/11": GET.replace(b"1.1", b"11") + b"\r\n", "HTTP 2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
    "two spaces": GET.replace(b" HTTP", b"  HTTP") + b"\r\n",
    "a tab for a space": GET.replace(b" HTTP", b"\tHTTP") + b"\r\n",
    "a space in the target": GET.replace(TARGET, TARGET + b" x") + b"\r\n",
    "no target": b"GET HTTP/1.1\r\n" + HEAD + b"\r\n", "an empty line first": b"\r\n" + GET + b"\r\n",
    "no host": b"GET " + TARGET + b" HTTP/1.1\r\n\r\n", "two hosts": GET + HEAD + b"\r\n",
    "an empty host": GET.replace(b"Host: a", b"Host: ") + b"\r\n",
    "a host with a path": GET.replace(b"Host: a", b"Host: a/b@c") + b"\r\n",
    "a target beyond ASCII": GET.replace(TARGET, TARGET + b"?\xff\xfe\xc3\x28") + b"\r\n",
    "a target with percent signs": GET.replace(TARGET, TARGET + b"?%%%zz%00%ff") + b"\r\n",
    "a target with a NUL": GET.replace(TARGET, TARGET + b"?\x00") + b"\r\n",
    "a target with a fragment": GET.replace(TARGET, TARGET + b"#x") + b"\r\n",
    "a target that goes up": GET.replace(TARGET, b"/events/../events/shown/queue/status") + b"\r\n",
    "a target with two slashes": GET.replace(TARGET, b"//events/shown/queue/status") + b"\r\n",
    "a target of 8 KB": GET.replace(TARGET, TARGET + b"?" + b"x" * 8_000) + b"\r\n",
    "a target of 60 KB": GET.replace(TARGET, TARGET + b"?" + b"x" * 60_000) + b"\r\n",
    "a target of 200 KB": GET.replace(TARGET, TARGET + b"?" + b"x" * 200_000) + b"\r\n",
    "a field of 60 KB": GET + b"X: " + b"y" * 60_000 + b"\r\n\r\n",
    "a field of 1 MB": GET + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "90 fields": GET + b"X: y\r\n" * 90 + b"\r\n", "5,000 fields": GET + b"X: y\r\n" * 5_000 + b"\r\n",
    "500 cookies": GET + b"Cookie: " + b"; ".join(b"a%d=b" % n for n in range(500)) + b"\r\n\r\n",
    "a body of 1 MB": _length(b"x" * 1_000_000),
    "a body of 1 MB in chunks": _chunked(*[_chunk(b"x" * 10_000)] * 100, END),
    "a body of single bytes": _chunked(*[b"1\r\nx\r\n"] * 3_000, END),
    "deep JSON": _length(b"[" * 50_000), "an announced terabyte": _length(b"x", b"1099511627776"),
    "Expect": _post(b"Expect: 100-continue\r\nContent-Length: 3\r\n", b"abc"),
    "an unknown Expect": _post(b"Expect: 200-maybe\r\nContent-Length: 3\r\n", b"abc"),
    "Expect without a body": GET + b"Expect: 100-continue\r\n\r\n",
    "an upgrade to h2c": GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
    "an upgrade to WebSocket": GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                               b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "an upgrade with a body": _post(b"Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n", b"abc"),
    "Connection names fields": GET + b"Connection: close, Host, X-Forwarded-For\r\n\r\n",
    "nothing": b"", "an empty line": b"\r\n", "random bytes": bytes(range(256)) * 4,
}  # fmt: skip
FORMS: Mapping[str, bytes] = SMUGGLING | OTHER
PIECES = (b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b",", b";", b"0", b"\r\n\r\n", b"\xff", TE, END, SMUGGLED,
          b"Content-Length: 3\r\n", b"Connection: keep-alive\r\n", b"Connection: close\r\n", b"HTTP/1.1",
          b"chunked")  # fmt: skip


def changed(form: bytes, random: Random) -> bytes:
    """The form with a few random changes: bytes removed, replaced, repeated, pieces of others put in."""
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(min(len(form), 400) + 1)
        end = min(len(form), at + random.choice((1, 1, 2, 5, 20)))
        kind = random.randrange(5)
        if kind == 0:
            form = form[:at] + form[end:]
        elif kind == 1:
            form = form[:at] + bytes([random.randrange(256)]) + form[at + 1 :]
        elif kind == 2:
            form = form[:end] + form[at:]
        elif kind == 3:
            form = form[:at] + random.choice(PIECES) + form[at:]
        else:
            other = random.choice(list(FORMS.values()))
            cut = random.randrange(min(len(other), 400) + 1)
            form = form[:at] + other[cut : cut + 300] + form[end:]
    return form
