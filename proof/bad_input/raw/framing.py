"""Where HTTP/1.1 messages end, by the letter of RFC 9112: a parser that accepts nothing doubtful. Of what the RFC lets
a server overlook, it overlooks empty lines before a request and several spaces between the words of its first line.

It shares no code with the server. What a server takes for a request and this does not is a request that a proxy in
front of it may have taken for something else.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e\x80-\xff]+) +HTTP/1\.([01])")
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*((?:;[\t\x20-\x7e\x80-\xff]*)?)")
LENGTH = re.compile(rb"[0-9]{1,18}")
CRLF, MAYBE_HEAD = b"\r\n", b"HEAD?"


class Doubtful(Exception):
    """The bytes from here on are not clearly a message."""


class Incomplete(Exception):
    """More bytes of this message must follow."""


class Message(NamedTuple):
    """The parts of the first line, the fields with names in lower case, and the body."""

    start: tuple[bytes, ...]
    fields: Mapping[bytes, bytes]
    body: bytes


class Reader:
    """Reads one message after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]

    def request(self) -> Message:
        """Raises `Doubtful` or `Incomplete`."""
        self._at = len(self._data) - len(self.rest.lstrip(CRLF))
        method, target, minor = _match(REQUEST_LINE, self._line())
        fields = self._fields()
        if len(fields.get(b"host", [])) != 1 and (minor == b"1" or b"host" in fields):
            raise Doubtful("not one Host")
        if b"transfer-encoding" in fields and (minor == b"0" or b"content-length" in fields):
            raise Doubtful("two ways to say where the body ends")
        return Message((method, target, minor), _single(fields), self._body(fields))

    def response(self, *, to_head: bool = False) -> Message:
        (status,) = _match(STATUS_LINE, self._line())
        fields = self._fields()
        without_body = to_head or status in (b"204", b"304") or status.startswith(b"1")
        if not without_body and b"transfer-encoding" not in fields and b"content-length" not in fields:
            body, self._at = self.rest, len(self._data)  # until the end of the connection
            return Message((status,), _single(fields), body)
        return Message((status,), _single(fields), b"" if without_body else self._body(fields))

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise Incomplete
        line, self._at = self._data[self._at : end], end + 1
        if not line.endswith(b"\r"):
            raise Doubtful("a line that ends without CR")
        return line[:-1]

    def _fields(self) -> dict[bytes, list[bytes]]:
        fields: dict[bytes, list[bytes]] = {}
        while line := self._line():
            name, value = _match(FIELD, line)
            fields.setdefault(name.lower(), []).append(value)
        return fields

    def _body(self, fields: Mapping[bytes, list[bytes]]) -> bytes:
        codings, lengths = fields.get(b"transfer-encoding", []), fields.get(b"content-length", [])
        if codings:
            if [coding.lower() for coding in codings] != [b"chunked"]:
                raise Doubtful("another coding than chunked")
            return self._chunks()
        if not lengths:
            return b""
        if len(lengths) > 1 or not LENGTH.fullmatch(lengths[0]):
            raise Doubtful("not one length")
        return self._exactly(int(lengths[0]))

    def _chunks(self) -> bytes:
        body = b""
        while True:
            size, _ = _match(CHUNK, self._line())
            if not int(size, 16):
                self._fields()
                return body
            body += self._exactly(int(size, 16))
            if self._exactly(2) != CRLF:
                raise Doubtful("a chunk does not end where it says")

    def _exactly(self, length: int) -> bytes:
        if len(self._data) - self._at < length:
            raise Incomplete
        part, self._at = self._data[self._at : self._at + length], self._at + length
        return part


def _match(pattern: "re.Pattern[bytes]", line: bytes) -> tuple[bytes, ...]:
    found = pattern.fullmatch(line)
    if found is None:
        raise Doubtful(f"not of the grammar: {line[:60]!r}")
    return found.groups()


def _single(fields: Mapping[bytes, list[bytes]]) -> dict[bytes, bytes]:
    return {name: b", ".join(values) for name, values in fields.items()}


def clear_requests(data: bytes) -> list[Message]:
    """The requests that everybody reads in these bytes; what follows is doubtful or incomplete."""
    reader, found = Reader(data), list[Message]()
    while reader.rest.strip(CRLF):
        try:
            found.append(message := reader.request())
        except (Doubtful, Incomplete):
            break
        tokens = {token.strip() for token in message.fields.get(b"connection", b"").lower().split(b",")}
        upgrades = b"upgrade" in tokens and b"upgrade" in message.fields
        if b"close" in tokens or upgrades or message.start[0] == b"CONNECT":
            break
        if message.start[2] == b"0" and b"keep-alive" not in tokens:
            break
    return found


def methods_of(data: bytes) -> list[bytes]:
    """The methods of all clear requests in these bytes, and MAYBE_HEAD if what follows begins like one: a server that
    has understood so much refuses it without a body.
    """
    found, reader = clear_requests(data), Reader(data)
    for _ in found:
        reader.request()
    doubtful = [MAYBE_HEAD] if reader.rest.lstrip(CRLF).startswith(b"HEAD") else []
    return [message.start[0] for message in found] + doubtful


def answers_in(data: bytes, methods: list[bytes]) -> list[Message]:
    """The final answers in what a server sent to requests with these methods; raises `Doubtful` or `Incomplete`."""
    reader, found = Reader(data), list[Message]()
    while reader.rest:
        method = methods[len(found)] if len(found) < len(methods) else b""
        may_lack_body = method == MAYBE_HEAD and reader.rest.endswith(CRLF * 2)
        answer = reader.response(to_head=method == b"HEAD" or may_lack_body)
        if not answer.start[0].startswith(b"1"):
            found.append(answer)
    return found
