"""Whether this process may act for the orders it owns: others take them over once its heartbeat is too old.

A beat counts from before it was sent, by the monotonic clock of this process. A provider is called only while the last
one is younger than half of what makes others take over. A process that was silent for longer begins anew: what it had
in work may be another's, and no run that began before calls a provider any more.
"""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from shared.http.outgoing import ExternalClient, ExternalResponse, NotReached
from shared.web.load_shedding import LoadShedder

_began_in: ContextVar[int | None] = ContextVar("began_in", default=None)


class Heartbeat:
    """The last beat of this process that the database has. `life` rises each time that the process was silent for too
    long.
    """

    def __init__(self, takeover_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s, self._clock = takeover_s / 2, clock
        self._beat_s: float | None = None
        self.life = 0

    def begin(self) -> float:
        """To be read before a beat is sent, and passed to `record`."""
        return self._clock()

    def record(self, begun_s: float) -> None:
        """The beat that began so is written."""
        if self._beat_s is not None and begun_s - self._beat_s >= self._fresh_s:
            self.life += 1
        self._beat_s = max(begun_s, self._beat_s or begun_s)

    @property
    def is_fresh(self) -> bool:
        """Whether nobody can have taken over our orders, nor will in the next moments."""
        return self._beat_s is not None and self._clock() - self._beat_s < self._fresh_s

    def enter(self) -> None:
        """A run of an order begins in this task."""
        _began_in.set(self.life)

    @property
    def may_call(self) -> bool:
        """Whether this task may call a provider: for the run that it has entered, or for no order at all."""
        return self.is_fresh and _began_in.get() in (None, self.life)


class ProviderClient:
    """The external client of providers. A call waits for a server outside the suite, so meanwhile the order is no load
    of this process. Without a fresh heartbeat nothing is sent, as if the provider could not be reached.
    """

    def __init__(self, client: ExternalClient, load: LoadShedder, heartbeat: Heartbeat) -> None:
        self._client, self._load, self._heartbeat = client, load, heartbeat

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        """As `ExternalClient.request`."""
        if not self._heartbeat.may_call:
            raise NotReached("this process was silent for too long: its orders may be another's")
        with self._load.outside():
            return await self._client.request(method, url, headers=headers, content=content, timeout_s=timeout_s)
