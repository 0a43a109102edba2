"""Sends raw bytes to our HTTP server, directly and through nginx and HAProxy.

An app behind the server records what requests it got and answers each with its number. An independent parser says where
requests end. The server must not see a request in what is doubtful, nor one more than a balancer in front of it; each
answer must be of its own request; the answers must be HTTP, none of them a server error; and the next fan's answer must
be their own.

Where HTTP/1.1 messages end, by the letter of RFC 9112: a parser that accepts nothing doubtful. Of what the RFC lets
a server overlook, it overlooks empty lines before a request and several spaces between the words of its first line.

It shares no code with the server. What a server takes for a request and this does not is a request that a proxy in
front of it may have taken for something else.
"""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import NamedTuple

import orjson
import psutil
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from onsale.local.ports import HOST, free_port
from onsale.server import serve
from onsale.server.one_port import Listener
from proof.bad_input.raw.http_forms import FINAL, FORMS, LAST, SMUGGLING, changed
from proof.bad_input.sale import Findings
from shared.errors.problems import Problem
from shared.web.answers import Answer, document
from tests.support.running.serving import whole_body
from tests.support.running.suite import Kind, RunningSuite, plan_for_ports, running_balancer

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


SILENT_S, WITHIN_S = 0.4, 5.0
DESCRIPTORS_SPARE, GROWN_MAX_MB = 20, 60
HEALTH = "/readyz"
_own_hosts = itertools.count(int(ip_address("127.1.0.1")))
HTTP_0_9 = re.compile(rb'(^|(?<=}))\{"type":"/problems/.*$')  # a refusal by nginx, which needs no head there
HTTP_2 = b"\x00\x00"  # a frame of HAProxy, which has seen the preface of HTTP/2


class Delivery(NamedTuple):
    """How bytes are sent: cut into pieces of at most so many bytes, and what the client does then."""

    piece_bytes: int = 1_000_000
    then: str = "reads"


DELIVERIES = (Delivery(), Delivery(), Delivery(1), Delivery(7), Delivery(300), Delivery(then="half-closes"),
              Delivery(then="leaves"), Delivery(9, "leaves"))  # fmt: skip


async def exchange(port: int, data: bytes, delivery: Delivery, *, silent_s: float = SILENT_S) -> tuple[bytes, str]:
    """Everything that is answered until the connection closes or is silent for a while; the client's address, which
    no other exchange has: an app may see the requests of a client that has left later than those of the next one.
    """
    received, own_host = b"", str(ip_address(next(_own_hosts)))
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(own_host, 0))

    async def send() -> None:
        with contextlib.suppress(ConnectionError):
            first = data[:4_000] if delivery.piece_bytes < 100 else data
            for at in range(0, len(first), delivery.piece_bytes):
                writer.write(first[at : at + delivery.piece_bytes])
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(data[len(first) :])
            await writer.drain()
            if delivery.then == "half-closes":
                writer.write_eof()

    sending = asyncio.ensure_future(send())
    try:
        if delivery.then == "leaves":
            await asyncio.wait({sending}, timeout=WITHIN_S)
        else:
            with contextlib.suppress(ConnectionError, TimeoutError):
                while part := await asyncio.wait_for(reader.read(65_536), silent_s if received else WITHIN_S):
                    received += part
    finally:
        sending.cancel()
        writer.transport.abort()
        await asyncio.gather(sending, return_exceptions=True)
    return received, own_host


@dataclass
class Recorder:
    """An ASGI app that records each request with a number and answers number, path and size of the body."""

    seen: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        request = {"number": next(self.numbers), "method": scope["method"], "path": path, "body": None}
        client, _ = scope["client"] or ("", 0)  # none, if it has gone already
        self.seen.setdefault(client, []).append(request)
        try:
            request["body"] = len(await whole_body(receive))
        except Problem as refused:
            await document(refused)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        await Answer(200, orjson.dumps(request))(scope, receive, send)

    def take(self) -> list[dict[str, object]]:
        """All requests since the last time, of all connections."""
        found = [request for requests in self.seen.values() for request in requests]
        self.seen.clear()
        return sorted(found, key=lambda request: int(str(request["number"])))


def direct_faults(data: bytes, received: bytes, seen: list[dict[str, object]], *, all_read: bool) -> list[str]:
    """What is wrong with these answers of our server and with the requests that its app saw."""
    clear, faults = clear_requests(data), list[str]()
    complete = [request for request in seen if request["body"] is not None]
    if len(complete) > len(clear) or not all(map(_is_same, complete, clear)) or complete != seen[: len(complete)]:
        faults.append("the app got a request that is not clear")
    if not all_read:
        return faults
    try:
        answers = answers_in(received, methods_of(data))
    except (Doubtful, Incomplete) as broken:
        return [*faults, f"what was answered is not HTTP: {type(broken).__name__} {broken}"]
    return faults + _answer_faults(answers, seen)


def _is_same(request: dict[str, object], message: Message) -> bool:
    return (str(request["method"]).encode(), request["body"]) == (message.start[0], len(message.body))


def _answer_faults(answers: list[Message], seen: list[dict[str, object]]) -> list[str]:
    faults = [f"a server error {int(each.start[0])}" for each in answers if each.start[0] >= b"500"]
    if len(answers) > len(seen) + 1:
        faults.append("more answers than requests")
    for each, request in itertools.zip_longest(answers, seen):
        if each is None:
            if request["body"] is not None:
                faults.append("a request without an answer")
        elif each.start[0] == b"200" and request is None:
            faults.append("an answer without a request")
        elif each.start[0] == b"200" and each.body and orjson.loads(each.body)["number"] != request["number"]:
            faults.append("an answer to another request")
    return faults


async def send_direct(found: Findings, *, seconds: float, random: Random, lanes: int = 6) -> None:
    """All forms, and then random changes of them, to our server alone."""
    recorder, forms, loop = Recorder(), _endless(random), asyncio.get_running_loop()
    listener, until_s = Listener(recorder, HOST, free_port()), loop.time() + seconds

    async def lane() -> None:
        for name, form, delivery in forms:
            data = form + FINAL
            received, own_host = await exchange(listener.port, data, delivery)
            found.count("raw requests")
            seen = recorder.seen.pop(own_host, [])
            for fault in direct_faults(data, received, seen, all_read=delivery.then == "reads"):
                _report(found, "our server", fault, name, f"{delivery}: {_shown(data)} -> {_shown(received)}")
            if loop.time() > until_s:
                return

    async with serve.running({}, [listener], {}):
        before = psutil.Process().num_fds()
        await asyncio.gather(*(lane() for _ in range(lanes)))
        await asyncio.sleep(0.1)
        _check_descriptors(found, "our server", before, psutil.Process().num_fds())
        await _check_health(found, "our server", listener.port)


@contextlib.asynccontextmanager
async def _chain(kind: Kind, recorder: ASGIApp, folder: Path) -> AsyncIterator[int]:
    """The port of this proxy in front of our server."""
    behind = Listener(recorder, HOST, free_port())
    async with serve.running({}, [behind], {}):
        with running_balancer(kind, plan_for_ports(behind.port), folder / kind) as url:
            yield int(url.rpartition(":")[2])


async def send_to_suite(
    suite: RunningSuite, found: Findings, *, seconds: float, random: Random, lanes: int = 4
) -> None:
    """The same to a running suite, which must stay healthy, and no larger than it was after the first forms."""
    process, forms, loop = psutil.Process(suite.program.process.pid), _endless(random), asyncio.get_running_loop()
    until_s, sizes = loop.time() + seconds, list[tuple[int, int]]()

    async def lane() -> None:
        for name, form, delivery in forms:
            data = form + FINAL
            received, _ = await exchange(suite.port, data, delivery)
            found.count("raw requests")
            for fault in suite_faults(data, received, all_read=delivery.then == "reads"):
                _report(found, "the suite", fault, name, f"{delivery}: {_shown(data)} -> {_shown(received)}")
            if not sizes and "changed" in name:
                sizes.append((process.memory_info().rss, process.num_fds()))
            if loop.time() > until_s:
                return

    await asyncio.gather(*(lane() for _ in range(lanes)))
    await asyncio.sleep(0.2)
    if sizes:
        _check_descriptors(found, "the suite", sizes[0][1], process.num_fds())
        grown_mb = (process.memory_info().rss - sizes[0][0]) / 2**20
        if grown_mb > GROWN_MAX_MB:
            found.add("the suite", "its memory grows", f"{grown_mb:.0f} MB more")
    received, _ = await exchange(suite.port, FINAL.replace(LAST, b"/livez"), Delivery())
    if not received.startswith(b"HTTP/1.1 200"):
        found.add("the suite", "does not answer any more", _shown(received))


def suite_faults(data: bytes, received: bytes, *, all_read: bool) -> list[str]:
    """What is wrong with these answers of the suite, of which it is not known which requests it took."""
    if not all_read:
        return []
    clear = clear_requests(data)
    try:
        answers = answers_in(received, methods_of(data))
    except (Doubtful, Incomplete) as broken:
        return [f"what was answered is not HTTP: {type(broken).__name__} {broken}"]
    faults = [f"a server error {int(each.start[0])}" for each in answers if each.start[0] >= b"500"]
    return [*faults, "more answers than requests"] if len(answers) > len(clear) + 1 else faults


async def send_through(kind: Kind, found: Findings, folder: Path, *, seconds: float, random: Random) -> None:
    """The same through a proxy: both must agree on where each request ends."""
    recorder, loop = Recorder(), asyncio.get_running_loop()
    until_s = loop.time() + seconds
    async with _chain(kind, recorder, folder) as port:
        for number, (name, form, delivery) in enumerate(_endless(random)):
            data = form + FINAL
            recorder.take()
            received, _ = await exchange(port, data, delivery)
            found.count("raw requests")
            seen = recorder.take()
            victim = b"/events/victim%d/queue/status" % number
            plain = b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % victim
            again, _ = await exchange(port, plain, Delivery())
            answered = f"{_shown(received)}, seen {seen}, then {_shown(again)}"
            for fault in through_faults(data, received, seen, again, victim, all_read=delivery.then == "reads"):
                _report(found, kind, fault, name, f"{delivery}: {_shown(data)} -> {answered}")
            if loop.time() > until_s:
                return


def through_faults(
    data: bytes, received: bytes, seen: list[dict[str, object]], again: bytes, victim: bytes, *, all_read: bool
) -> list[str]:
    """What is wrong with what a proxy answered, with what our server saw behind it, and with the next fan's answer."""
    faults = [] if b'"path":"%b"' % victim in again else ["the next fan got another answer"]
    if not all_read:
        return faults
    seen = [request for request in seen if request["path"] != HEALTH]
    received = HTTP_0_9.sub(b"", received)
    if received.startswith(HTTP_2):
        return faults
    methods = [str(request["method"]).encode() for request in seen]
    unseen = [MAYBE_HEAD if method == b"HEAD" else method for method in methods_of(data)[len(methods) :]]
    try:  # HAProxy's own refusals have a body, also for HEAD, and end the connection
        answers = answers_in(received, methods + unseen)
    except (Doubtful, Incomplete) as broken:
        return [*faults, f"what was answered is not HTTP: {type(broken).__name__} {broken}"]
    faults += [f"a server error {int(each.start[0])}" for each in answers if each.start[0] >= b"500"]
    complete = [request for request in seen if request["body"] is not None]
    good = [each for each in answers if each.start[0] == b"200"]
    if len(complete) > len(good):
        faults.append("our server saw more requests than the proxy answered")
    for each, request in zip(good, complete, strict=False):
        if each.body and orjson.loads(each.body)["number"] != request["number"]:
            faults.append("an answer to another request")
    return faults


def _endless(random: Random) -> Iterator[tuple[str, bytes, Delivery]]:
    """Every form whole, then every form in random pieces, then random changes."""
    for delivery in (Delivery(), None):
        names = list(FORMS)
        random.shuffle(names)
        for name in names:
            yield name, FORMS[name], delivery or random.choice(DELIVERIES)
    while True:
        name = random.choice(list(SMUGGLING if random.random() < 0.7 else FORMS))
        yield f"{name}, changed", changed(FORMS[name], random), random.choice(DELIVERIES)


def _report(found: Findings, where: str, fault: str, form: str, example: str) -> None:
    found.add(where, f"{fault} ({form.partition(',')[0]})", f"{form}, {example}")


def _shown(data: bytes) -> str:
    return repr(data if len(data) < 700 else data[:500] + b" ... " + data[-100:])


def _check_descriptors(found: Findings, whose: str, before: int, after: int) -> None:
    if after > before + DESCRIPTORS_SPARE:
        found.add(whose, "descriptors stay open", f"{before} before, {after} after")


async def _check_health(found: Findings, whose: str, port: int) -> None:
    received, _ = await exchange(port, FINAL, Delivery())
    if not received.startswith(b"HTTP/1.1 200"):
        found.add(whose, "does not answer any more", _shown(received))
