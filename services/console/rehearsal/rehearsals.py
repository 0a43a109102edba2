"""Starts a rehearsal, follows it, and removes it. A console runs one at a time, and an event has one at a time."""

import asyncio
import importlib.util
import time
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex

from services.console.gathering.admin_api import AdminApi
from services.console.problems import NoRehearsal, NoSimulator, PaymentIsReal, RehearsalRuns
from services.console.rehearsal.process import Simulator
from services.console.rehearsal.records import Records
from services.console.settings import Settings
from services.console.tuning import Tuning
from shared.contracts.admin.console import READ_PROVIDERS, RehearsalStart, RehearsalState, RehearsalView
from shared.contracts.admin.queue import SET_ROOM_STATE
from shared.errors.problems import Unavailable, UnknownEvent
from shared.runtime.logging import get_logger
from shared.security.auth import OperatorSession

log = get_logger("onsale.console")
SANDBOX = "sandbox"
EACH_S, STEP_S, REMOVED_WITHIN_S = 1.0, 0.2, 25.0
AUTHORITY_SPARE_S = 120  # it still closes its copy when its time is over


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
        offered = {one.name for one in (await self._admin.ask("orders", READ_PROVIDERS)).providers}
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
                body = {"reason": "The rehearsal is removed"}
                await self._admin.act("queue", SET_ROOM_STATE, body, session, event_id=view.copy_id, action="close")
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
