"""Lua scripts as functions: one file per script, whose header is its signature.

A header line is `-- KEYS[i] name type meaning` or `-- ARGV[i] name type meaning`; `[i+]` marks the last slot as a
list. A call with wrong names is rejected before Redis is called. Scripts run by `EVALSHA`; a server that lost one gets
it again by `EVAL`, which is safe because every script is idempotent.
"""

import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from shared.runtime import tracing
from shared.runtime.logging import sale_log

_SLOT = re.compile(r"^-- (KEYS|ARGV)\[(\d+)(\+?)\] (\w+) +(\w+) +(\S.*)$")
Value = str | bytes | int | float
Argument = Value | Iterable[Value]


@dataclass(frozen=True, slots=True)
class Slot:
    """One named input of a script."""

    name: str
    kind: str
    is_list: bool


def _slots(source: str, which: str, file: str) -> tuple[Slot, ...]:
    found = [m for line in source.splitlines() if (m := _SLOT.match(line)) and m[1] == which]
    if [int(m[2]) for m in found] != list(range(1, len(found) + 1)) or any(m[3] for m in found[:-1]):
        raise ValueError(f"{file}: the header must number its {which} from 1, and only the last may be a list")
    return tuple(Slot(m[4], m[5], bool(m[3])) for m in found)


class Script:
    """One Lua script, called with the names in its header: `await hold(redis, map=…, reservation_id=…)`."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.keys = _slots(source, "KEYS", name)
        self.arguments = _slots(source, "ARGV", name)
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._names = {slot.name for slot in (*self.keys, *self.arguments)}

    @classmethod
    def load(cls, package: str, *names: str, prelude: str = "") -> "Script":
        """From `<package>/lua/<name>.lua`: the last is the script, `prelude` and the others stand in front of it."""
        folder = importlib.resources.files(package).joinpath("lua")
        source = prelude + "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
        return cls(f"{package}:{names[-1]}", source)

    async def __call__(self, redis: Redis, /, **named: Argument) -> Any:
        keys, arguments = self.bind(named)
        if tracing.tracer is None and not sale_log.on:
            return await self._run(redis, keys, arguments)
        with tracing.span(f"redis {self.name}"), sale_log.timed("sale.engine", script=self.name):
            return await self._run(redis, keys, arguments)

    async def _run(self, redis: Redis, keys: list[Value], arguments: list[Value]) -> Any:
        try:
            return await redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await redis.execute_command("EVAL", self.source, len(keys), *keys, *arguments)

    async def many(self, redis: Redis, calls: Sequence[Mapping[str, Argument]]) -> list[Any]:
        """Makes all calls in one round trip, for keys of one slot; each reply may be a `ResponseError`."""
        bound = [self.bind(call) for call in calls]
        many = sale_log.timed("sale.engine", script=self.name, calls=len(calls))
        with tracing.span(f"redis {self.name}", members=len(calls)), many:
            answers = await self._pipeline(redis, "EVALSHA", self.sha, bound)
        missing = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if missing:
            again = await self._pipeline(redis, "EVAL", self.source, [bound[i] for i in missing])
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
        return answers

    @staticmethod
    async def _pipeline(
        redis: Redis, command: str, script: str, bound: list[tuple[list[Value], list[Value]]]
    ) -> list[Any]:
        pipe = redis.pipeline(transaction=False)
        for keys, arguments in bound:
            pipe.execute_command(command, script, len(keys), *keys, *arguments)
        return list(await pipe.execute(raise_on_error=False))

    def bind(self, named: Mapping[str, Argument]) -> tuple[list[Value], list[Value]]:
        """KEYS and ARGV in the header's order; raises `TypeError` if the names are not exactly the header's."""
        if named.keys() != self._names:
            names = ", ".join(sorted(named.keys() ^ self._names))
            raise TypeError(f"{self.name}: missing or unknown: {names}")
        return self._flat(self.keys, named), self._flat(self.arguments, named)

    def _flat(self, slots: tuple[Slot, ...], named: Mapping[str, Argument]) -> list[Value]:
        flat: list[Value] = []
        for slot in slots:
            value = named[slot.name]
            if isinstance(value, str | bytes | int | float):
                if slot.is_list:
                    raise TypeError(f"{self.name}: {slot.name} is a list")
                flat.append(value)
            elif slot.is_list:
                flat.extend(value)
            else:
                raise TypeError(f"{self.name}: {slot.name} takes one {slot.kind}")
        return flat


def reply_status(reply: Any) -> str:
    """The status that a script returned, alone or first in a list; raises an error reply."""
    if isinstance(reply, ResponseError):
        raise reply
    first = reply[0] if isinstance(reply, list) else reply
    return first.decode() if isinstance(first, bytes) else str(first)
