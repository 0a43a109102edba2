"""Rehearsals: a simulated sale against a copy of an event, run by the command line in a process of its own, started,
followed and removed here. A console runs one at a time, and an event has one at a time.

The last rehearsal of each event is in Redis, so that every console answers the same whichever runs it. The console that
runs one keeps a mark, which says so. Without the mark nobody runs it: a console that died left its record as it was.
Any console stops a rehearsal by writing into the mark.

The process, `onsale rehearse --supervised`, says in lines of JSON how far it is. It has the operator's authority in its
environment, never among its arguments, and nothing else of this process'. It stops and closes its copy when its input
ends: when it is told to, and also when this process dies.
"""

import asyncio
import importlib.util
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

import orjson

from features.console.gathering.admin_api import AdminApi
from features.console.schemas import RehearsalStart, RehearsalState, RehearsalView
from features.console.settings import Settings
from features.console.tuning import Tuning
from shared.errors.problems import Problem, Unavailable, UnknownEvent
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.logging import get_logger
from shared.security.auth import OperatorSession

log = get_logger("onsale.console")
SANDBOX = "sandbox"
EACH_S, STEP_S, REMOVED_WITHIN_S = 1.0, 0.2, 25.0
AUTHORITY_SPARE_S = 120  # it still closes its copy when its time is over
KEPT_S, MARK_S, STOP_S = 30 * 86_400, 15, 60
STOP = b"stop"
COMMAND = (sys.executable, "-P", "-m", "onsale", "rehearse")
INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
LINE_BYTES_MAX, ERROR_BYTES_KEPT = 256 * 1024, 2_000
STOP_WITHIN_S = 20.0


class NoRehearsal(Problem, status=404):
    """This event has no rehearsal."""


class RehearsalRuns(Problem, status=409):
    """A rehearsal runs already. Wait for its end, or stop it."""


class PaymentIsReal(Problem, status=409):
    """Nothing was started: with another payment provider than the sandbox a rehearsal could move real money."""


class NoSimulator(Problem, status=503):
    """This console has no simulator: the command `onsale` is not installed beside it."""


class Records:
    """All records. Each method raises `Unavailable` without Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def mark(self, event_id: str, process: str) -> bool:
        """Whether this process runs the event's rehearsal from now on; not while another does."""
        with _redis_needed():
            return bool(await self._redis.set(_mark(event_id), process, nx=True, ex=MARK_S))

    async def renew(self, event_id: str, process: str) -> bool:
        """Keeps the mark, also after Redis lost it; false if somebody said to stop."""
        with _redis_needed():
            mark = await self._redis.get(_mark(event_id))
            if mark in (None, process.encode()):
                await self._redis.set(_mark(event_id), process, ex=MARK_S)
                return True
            return False

    async def say_stop(self, event_id: str) -> None:
        """Tells whoever runs it to stop."""
        with _redis_needed():
            await self._redis.set(_mark(event_id), STOP, xx=True, ex=STOP_S)

    async def unmark(self, event_id: str) -> None:
        with _redis_needed():
            await self._redis.delete(_mark(event_id))

    async def write(self, view: RehearsalView) -> None:
        with _redis_needed():
            await self._redis.set(_record(view.event_id), view.model_dump_json(), ex=KEPT_S)

    async def read(self, event_id: str) -> RehearsalView | None:
        """One that nobody runs any more, and that has not ended, is lost."""
        with _redis_needed():
            text, marked = await self._redis.get(_record(event_id)), await self._redis.exists(_mark(event_id))
        if text is None:
            return None
        view = RehearsalView.model_validate_json(text)
        return view if marked or view.state != "running" else view.model_copy(update={"state": "lost"})

    async def forget(self, event_id: str) -> None:
        with _redis_needed():
            await self._redis.delete(_record(event_id))


@contextmanager
def _redis_needed() -> Iterator[None]:
    try:
        yield
    except REDIS_AWAY as away:
        raise Unavailable("Redis is away, and with it the records of rehearsals. Try again shortly.") from away


def _record(event_id: str) -> str:
    return f"console:rehearsal:{{{event_id}}}"


def _mark(event_id: str) -> str:
    return f"{_record(event_id)}:runs"


class Simulator:
    """The running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = b""
        self._reader = asyncio.create_task(self._keep_errors())

    @classmethod
    async def start(cls, arguments: Sequence[str], *, authority: str) -> "Simulator":
        """Raises `OSError`."""
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *COMMAND, *arguments, "--supervised", env=environment | {"ONSALE_ADMIN_KEY": authority}, stdin=pipe,
                stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX, start_new_session=True,
            )
        )  # fmt: skip

    async def documents(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until its output ends. Raises `ValueError` for a line that is too long or no JSON object."""
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            document = orjson.loads(line)
            if not isinstance(document, dict):
                raise ValueError("not an object")
            yield document

    async def stop(self) -> None:
        """It closes its copy and ends; one that does not is killed."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def error(self) -> str:
        """The end of what it wrote about why it failed; only after its output has ended."""
        await self._reader
        return self._errors.decode(errors="replace").strip().removeprefix("onsale: ")

    async def _keep_errors(self) -> None:
        assert self._process.stderr
        while part := await self._process.stderr.read(4096):
            self._errors = (self._errors + part)[-ERROR_BYTES_KEPT:]


class Rehearsals:
    """Of one process."""

    def __init__(self, records: Records, admin: AdminApi, settings: Settings, tuning: Tuning) -> None:
        self._records, self._admin = records, admin
        self._url, self._max_s = settings.admin_url, tuning.rehearsal_max_s
        self._process = f"console-{token_hex(6)}"
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def start(self, session: OperatorSession, event_id: str, wanted: RehearsalStart) -> RehearsalView:
        """Raises `NoSimulator`, `PaymentIsReal`, `RehearsalRuns`, `Unavailable`, and the problems of orders."""
        if importlib.util.find_spec("onsale") is None:
            raise NoSimulator
        offered = {one.name for one in (await self._admin.read_providers()).providers}
        if offered != {SANDBOX}:
            raise PaymentIsReal(f"Payments go to {', '.join(sorted(offered))}: a rehearsal could move real money.")
        if self._task and not self._task.done():
            raise RehearsalRuns("This console runs a rehearsal already. Wait for its end, or stop it.")
        if not await self._records.mark(event_id, self._process):
            raise RehearsalRuns
        view = RehearsalView(
            event_id=event_id, state="running", fans=wanted.fans, reason=wanted.reason, process=self._process,
            started_by=session.operator.name, started_at=datetime.now(UTC),
        )  # fmt: skip
        arguments = [event_id, "--fans", str(wanted.fans), "--url", self._url, f"--reason={wanted.reason}"]
        authority = self._admin.sign(session._replace(expires_at_s=int(time.time() + self._max_s) + AUTHORITY_SPARE_S))
        try:
            await self._records.write(view)
            simulator = await Simulator.start(arguments, authority=authority)
        except BaseException:
            await self._records.unmark(event_id)
            raise
        self._task = asyncio.create_task(self._follow(simulator, view))
        log.info("rehearsal.started", event_id=event_id, by=session.operator.name, fans=wanted.fans)
        return view

    async def read(self, event_id: str) -> RehearsalView:
        """Raises `NoRehearsal`, `Unavailable`."""
        view = await self._records.read(event_id)
        if view is None:
            raise NoRehearsal
        return view

    async def remove(self, session: OperatorSession, event_id: str) -> None:
        """Stops it if it runs, here or elsewhere, sees that its copy is closed, and forgets it. Raises `NoRehearsal`,
        `Unavailable`, and the problems of the queue.
        """
        view = await self.read(event_id)
        await self._records.say_stop(event_id)
        deadline_s = asyncio.get_running_loop().time() + REMOVED_WITHIN_S
        while view.state == "running" and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(STEP_S)
            view = await self.read(event_id)
        if view.copy_id is not None:
            with suppress(UnknownEvent):
                why = {"reason": "The rehearsal is removed"}
                await self._admin.acting_as(session).set_room_state(view.copy_id, "close", why)
        await self._records.forget(event_id)
        log.info("rehearsal.removed", event_id=event_id, by=session.operator.name)

    async def close(self) -> None:
        """This process ends: its rehearsal stops and closes its copy."""
        self._closing.set()
        if self._task:
            await asyncio.wait({self._task})

    async def _follow(self, simulator: Simulator, view: RehearsalView) -> None:
        """Writes down what the simulator says, until it has ended or must stop."""
        run = _Run(simulator, view)
        reading = asyncio.create_task(run.read())
        closing = asyncio.create_task(self._closing.wait())
        ends_s = asyncio.get_running_loop().time() + self._max_s
        try:
            while run.stopped_because is None:
                await asyncio.wait({reading, closing}, timeout=EACH_S, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    break
                if closing.done():
                    run.stopped_because = "The console that ran it has stopped."
                elif asyncio.get_running_loop().time() > ends_s:
                    run.stopped_because = f"It took longer than {self._max_s:g} s."
                else:
                    with suppress(Unavailable):  # it goes on without Redis, and is shown again afterwards
                        await self._records.write(run.view)
                        if not await self._records.renew(view.event_id, self._process):
                            run.stopped_because = "An operator stopped it."
        finally:
            closing.cancel()
            await simulator.stop()
            with suppress(Unavailable):
                await self._records.write(await run.ended(reading))
                await self._records.unmark(view.event_id)
            log.info("rehearsal.ended", event_id=view.event_id, state=run.view.state, detail=run.view.detail)


class _Run:
    """What one simulator has said so far."""

    def __init__(self, simulator: Simulator, view: RehearsalView) -> None:
        self._simulator, self.view = simulator, view
        self.stopped_because: str | None = None

    async def read(self) -> None:
        """Raises `ValueError` for what is not understood."""
        async for document in self._simulator.documents():
            self.view = RehearsalView.model_validate({**dict(self.view), **document})

    async def ended(self, reading: "asyncio.Task[None]") -> RehearsalView:
        """The record of its end, after the process has ended."""
        [read] = await asyncio.gather(reading, return_exceptions=True)
        state: RehearsalState = "done"
        detail = self.stopped_because
        if self.view.result is None:
            state = "failed" if detail is None else "stopped"
            detail = detail or await self._simulator.error() or "It ended without a result."
            if isinstance(read, Exception):
                log.error("rehearsal.not_understood", exc_info=read)
        update = {"state": state, "detail": detail, "ended_at": datetime.now(UTC)}
        self.view = self.view.model_copy(update=update)
        return self.view
