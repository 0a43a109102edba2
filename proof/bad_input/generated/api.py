"""Sends what schemathesis generates from the OpenAPI documents to a running suite, as everybody.

Each request goes out once as generated and once about things that exist, by each sender. Every answer must be one that
the document describes, no answer may be a server error, and the suite's log may have no line of the level ERROR.
"""

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, get_args

import orjson

from proof.bad_input.generated.answers import AnswerChecks
from proof.bad_input.generated.documents import Call, Operation, operations_in, read_document
from proof.bad_input.generated.variations import variations
from proof.bad_input.sale import Findings, Sale, Sender, close_sales, sale_for_fans, sale_for_operators
from shared.http.http1 import ConnectionLost, HttpClient
from tests.support.running.suite import RunningSuite
from tools.openapi import Readers

ALL_READERS: tuple[Readers, ...] = get_args(Readers)
ENDS = ("/cancel", "/release", "/reset", "/close", "/release-all", "/refund")
IN_FLIGHT, ANSWER_WITHIN_S = 16, 20.0
POOL_MAX = 300


class Sizes(NamedTuple):
    """Requests of one operation in one round: examples of schemathesis (valid, and as many invalid), cases of its
    coverage phase, and variations of both; how many senders send each.
    """

    examples: int
    edges: int
    variations: int
    senders: int = 9

    def next(self) -> "Sizes":
        """Of the next round, up to what keeps the time between two sales at some minutes."""
        return Sizes(*(min(size * 2, most) for size, most in zip(self, LARGEST, strict=True)))


SMALLEST, LARGEST, SLICE = Sizes(1, 4, 6), Sizes(3, 16, 32), Sizes(0, 0, 0, senders=2)


class GeneratedRequests:
    """Requests of one document to one suite."""

    def __init__(self, suite: RunningSuite, readers: Readers, found: Findings, random: Random) -> None:
        self._suite, self._readers, self._found, self._random = suite, readers, found, random
        self._checks = AnswerChecks(readers)
        operations = [operation for operation in operations_in(read_document(readers)) if not operation.is_stream]
        random.shuffle(operations)
        self._operations = sorted(
            operations, key=lambda one: one.label.startswith("DELETE") or one.label.endswith(ENDS)
        )
        self._edges: dict[str, list[Call]] = {}
        self._pools: dict[str, deque[Call]] = {}
        names = {name for operation in operations for name in operation.names}
        self._id_names = frozenset(names - {"event_id", "proxy", "provider", "action", "section_id"})

    async def run(self, client: HttpClient, sale: Sale, sizes: Sizes, until_s: float) -> None:
        """Each operation once, before this moment."""
        for operation in self._operations:
            if time.monotonic() > until_s:
                return
            calls = [*operation.calls(sizes.examples, self._random.randrange(2**32)),
                     *self._some_edges(operation, sizes.edges)]  # fmt: skip
            self._found.count("generated requests", len(calls))
            pool = self._pools.setdefault(operation.label, deque(maxlen=POOL_MAX))
            pool.extend(calls)
            varied = list(variations(pool, sizes.variations, self._random))
            await self._send_all(client, sale, [*calls, *varied], sizes.senders)

    def _some_edges(self, operation: Operation, count: int) -> Sequence[Call]:
        """The next cases of the coverage phase; all of them, before the first comes again."""
        left = self._edges.get(operation.label)
        if not left:
            left = self._edges[operation.label] = list(operation.coverage())
            self._random.shuffle(left)
        taken, self._edges[operation.label] = left[:count], left[count:]
        return taken

    async def _send_all(self, client: HttpClient, sale: Sale, calls: Sequence[Call], senders: int) -> None:
        known = [call.with_known(sale.choose(self._random)) for call in calls]
        different = {repr(call): call for call in (*calls, *known)}.values()
        waiting = iter([(call, sender) for call in different for sender in self._choose(sale.senders, call, senders)])

        async def send_some() -> None:
            for call, sender in waiting:
                await self._send(client, sale, call, sender)

        await asyncio.gather(*(send_some() for _ in range(IN_FLIGHT)))

    def _choose(self, senders: list[Sender], call: Call, most: int) -> list[Sender]:
        """Who sends this call. One is enough for a method that the operation does not have."""
        return self._random.sample(senders, min(most, len(senders)) if call.label.startswith(call.method) else 1)

    async def _send(self, client: HttpClient, sale: Sale, call: Call, sender: Sender) -> None:
        headers = {**call.headers, **sender.headers}
        self._found.count("requests")
        try:
            answer = await client.request(
                call.method, f"{self._suite.url}{call.target}", headers=headers, content=call.body,
                timeout=ANSWER_WITHIN_S,
            )  # fmt: skip
        except (ConnectionLost, TimeoutError) as lost:
            self._found.add(call.label, f"no answer: {type(lost).__name__}", _example(call, sender))
            return
        for fault in self._checks.faults(call, answer, sender.role):
            self._found.add(call.label, fault, f"{_example(call, sender)} -> {answer.content[:300]!r}")
        if answer.status_code < 300 and answer.content[:1] in (b"{", b"["):
            sale.keep_ids(orjson.loads(answer.content), self._id_names)


def _ends_something(operation: Operation) -> bool:
    """Whether requests after it find less: it comes last."""
    return operation.label.startswith("DELETE") or operation.label.endswith(ENDS)


def _example(call: Call, sender: Sender) -> str:
    return f"{call.method} {call.target} as {sender.name}, headers {dict(call.headers)}, body {call.body[:300]!r}"


class LogErrors:
    """Lines of the level ERROR in the suite's log. What was read is cut off, so that hours of requests fill no disk."""

    def __init__(self, suite: RunningSuite, found: Findings) -> None:
        self._path, self._found = suite.program.log_path, found

    def collect(self) -> None:
        with self._path.open("rb") as log:
            for line in log:
                if b'"level":"ERROR"' in line or b'"level": "ERROR"' in line or line.startswith(b"Traceback"):
                    self._found.add("log", _event(line), line[:1500].decode(errors="replace"))
        os.truncate(self._path, 0)


def _event(line: bytes) -> str:
    try:
        return str(json.loads(line).get("event"))
    except ValueError:
        return "a traceback"


async def send_generated(
    suite: RunningSuite, found: Findings, *, seconds: float, seed: int, sizes: Sizes = SMALLEST, rounds: int = 2**31
) -> None:
    """Larger and larger rounds, each with new sales, until the time is over."""
    random, until_s, log = Random(seed), time.monotonic() + seconds, LogErrors(suite, found)
    parts = {readers: GeneratedRequests(suite, readers, found, random) for readers in ALL_READERS}
    async with suite.browser() as browser, HttpClient(connections_max=IN_FLIGHT) as client:
        for _ in range(rounds):
            if time.monotonic() > until_s:
                return
            sales = {"fans": await sale_for_fans(suite, browser), "operators": await sale_for_operators(suite, browser)}
            for readers, part in parts.items():
                part_s = (until_s - time.monotonic()) * (0.4 if readers == "fans" else 1)
                await part.run(client, sales[readers], sizes, time.monotonic() + part_s)
            await close_sales(suite)
            log.collect()
            sizes = sizes.next()
