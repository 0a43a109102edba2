"""Logs one JSON line per record: an event name and the fields of that event; never a token or an e-mail address.

`log = get_logger(__name__)`, then `log.info("hold.expired", event_id=…)`. A line that is written while a request is
served also has the request's id, its event and, if it is traced, the trace's id. The line's own `at`, `level` and
`logger` cannot be overwritten by a field.

ERROR means a bug or an outage; an expected refusal is INFO. `sale_log` has a line for each step of a sale, off by
default. Until `write_json_lines` is called, records go to the standard library's logging.
"""

import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, BinaryIO, Protocol, cast

import orjson
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger

CHATTY = ("httpx", "httpcore", "uvicorn.access", "asyncio")  # they would log addresses with what stands in them
Fields = MutableMapping[str, Any]
request_fields: ContextVar[dict[str, str]] = ContextVar("request_fields", default={})  # noqa: B039 - never changed


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of this name; what it writes has it as `logger`."""
    return cast("FilteringBoundLogger", structlog.get_logger(name))


def write_json_lines(level: int = logging.INFO) -> None:
    """Sends every record of this process to standard error as JSON lines, those of libraries included."""
    lines = _Lines(sys.stderr.buffer)
    structlog.configure(
        processors=[_add_name, *RENDERING, _to_bytes],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name: _NamedLogger(lines, name),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(json_lines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def json_lines() -> logging.Formatter:
    """Formats a record of the standard library as the same line."""
    return ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder()],
        processors=[ProcessorFormatter.remove_processors_meta, *RENDERING, _to_text],
    )


class _Lines:
    """A file that loses what cannot be written: who logs goes on when the disk is full or the reader has gone."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, line: bytes) -> None:
        with suppress(OSError):
            self._file.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class _NamedLogger(structlog.BytesLogger):
    """Writes lines and knows its name."""

    def __init__(self, lines: _Lines, name: str) -> None:
        super().__init__(cast("BinaryIO", lines))
        self.name = name


def _add_name(logger: _NamedLogger, _: str, fields: Fields) -> Fields:
    fields["logger"] = logger.name
    return fields


def _add_context(_: WrappedLogger, __: str, fields: Fields) -> Fields:
    for name, value in request_fields.get().items():
        fields.setdefault(name, value)
    return fields


def _stamp(_: WrappedLogger, level: str, fields: Fields) -> Fields:
    fields["at"], fields["level"] = round(time.time(), 3), level.upper()
    return fields


def _explain_failure(_: WrappedLogger, __: str, fields: Fields) -> Fields:
    """An outage as one short field; a possible bug with its traceback."""
    given = fields.pop("exc_info", None)
    failed = given if isinstance(given, BaseException) else given[1] if isinstance(given, tuple) else sys.exc_info()[1]
    if given and failed is not None:
        from shared.errors.outages import in_one_line, is_outage  # only here: `outages` imports the drivers

        if is_outage(failed):
            fields["error"] = in_one_line(failed)
        else:
            fields["exception"] = "".join(traceback.format_exception(failed)).rstrip("\n")
    return fields


def _to_bytes(_: WrappedLogger, __: str, fields: Fields) -> bytes:
    return orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS)


def _to_text(_: WrappedLogger, __: str, fields: Fields) -> str:
    return _to_bytes(_, __, fields).decode()


def _to_standard_library(_: WrappedLogger, __: str, fields: Fields) -> tuple[tuple[str], dict[str, Any]]:
    name, failed = fields.pop("event"), fields.pop("exc_info", None)
    return (name,), {"exc_info": failed, "extra": {"data": dict(fields)}}


RENDERING: tuple[Processor, ...] = (_add_context, _stamp, _explain_failure)


def write_to_standard_library() -> None:
    """As before `write_json_lines`: records go to the loggers of the standard library."""
    structlog.configure(
        processors=[_add_context, _to_standard_library],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


write_to_standard_library()


# -- each step of a sale -----------------------------------------------------------------------------------------------
# Off unless `ONSALE_LOG_SALE` says for which share of the steps; then a step costs one test of a boolean. Whether a
# request is logged is decided once, when it comes; what it causes in batches and other services is logged with it and
# has its id. Work that no request asked for is logged by the same share. No line has a token, an address or a name.

SALE = get_logger("onsale.sale")
REQUEST_STEPS: Mapping[tuple[str, str], str] = {  # by method and route
    ("POST", "/events/{event_id}/queue"): "sale.join",
    ("DELETE", "/events/{event_id}/queue"): "sale.leave",
    ("GET", "/events/{event_id}/queue/status"): "sale.position",
    ("POST", "/events/{event_id}/queue/pass"): "sale.claim",
    ("POST", "/events/{event_id}/reservations"): "sale.hold",
    ("DELETE", "/events/{event_id}/reservations/{reservation_id}"): "sale.release",
    ("POST", "/events/{event_id}/reservations/{reservation_id}/keep"): "sale.release",
    ("POST", "/orders"): "sale.order",
}
_picked: ContextVar[bool | None] = ContextVar("sale_log_picked", default=None)  # None: no request decided


class LoggedRequest(Protocol):
    """What the line of a request shows of it."""

    id: str
    status: int
    path: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def method(self) -> str: ...


class SaleLog:
    """The lines of this process. Services that share a process share it: the largest share of theirs counts."""

    __slots__ = ("on", "share")

    def __init__(self) -> None:
        self.share, self.on = 0.0, False

    def use(self, share: float) -> None:
        self.share = max(self.share, share)
        self.on = self.share > 0

    def picks(self) -> bool:
        return random.random() < self.share  # noqa: S311

    def wanted(self) -> bool:
        """Whether what happens now is logged: as its request was decided, else by the share."""
        picked = _picked.get()
        return self.picks() if picked is None else picked

    def headers(self) -> dict[str, str]:
        """For a call to another service: the id of a logged request, which is logged there, too."""
        return {"x-request-id": request_fields.get()["request_id"]} if self.on and self.in_request() else {}

    def in_request(self) -> bool:
        """Whether this runs for a request that is logged."""
        return _picked.get() is True and "request_id" in request_fields.get()

    def write(self, name: str, /, **facts: Any) -> None:
        """The line of a step, if this one is logged."""
        if self.wanted():
            self.line(name, **facts)

    def line(self, name: str, /, **facts: Any) -> None:
        """The line of a step of which it was decided before."""
        SALE.info(name, **facts)

    @contextmanager
    def timed(self, name: str, /, **facts: Any) -> Iterator[None]:
        """The line of what runs inside, with its milliseconds and whether it failed."""
        if not self.on:
            yield
            return
        began_s, outcome = time.perf_counter(), "ok"
        try:
            yield
        except BaseException as failed:
            outcome = reason_of(failed)
            raise
        finally:
            self.write(name, ms=_ms(began_s), outcome=outcome, **facts)

    def picks_request(self, path: str, *, named: bool) -> bool:
        """Whether a request is logged with all it causes. One of another service that has an id is logged there."""
        return (named and path.startswith("/internal")) or self.picks()

    @contextmanager
    def request(self, picked: bool) -> Iterator[None]:
        """What happens inside happens for a request of which this was decided."""
        token = _picked.set(picked)
        try:
            yield
        finally:
            _picked.reset(token)

    def ended(self, request: LoggedRequest, route: str, *, ms: float) -> None:
        """The line of a request that is logged, if it is a step of the sale."""
        name = REQUEST_STEPS.get((request.method, route))
        if name is not None:
            facts = {"event_id": request.path.get("event_id"), **request.facts}
            self.line(name, request_id=request.id, status=request.status, ms=round(ms, 2), **facts)

    @contextmanager
    def batch(
        self, name: str, members: int, *, requests: Sequence[dict[str, str]], waited_s: float
    ) -> Iterator[Counter[str]]:
        """The line of a batch, which runs for the first of the logged requests in it: how long they waited for the
        batches before, and how it ended for whom.
        """
        decided = _picked.set(True if requests else None)
        of_first = request_fields.set(requests[0] if requests else {})
        began_s, outcomes = time.perf_counter(), Counter[str]()
        try:
            yield outcomes
        finally:
            self.write("sale.batch", batch=name, members=members, waited_ms=round(waited_s * 1000, 2), ms=_ms(began_s),
                       outcomes=dict(outcomes), request_ids=[each["request_id"] for each in requests[:5]])  # fmt: skip
            request_fields.reset(of_first)
            _picked.reset(decided)


def reason_of(failed: BaseException) -> str:
    """A problem's slug, else the name of the exception."""
    return str(getattr(failed, "slug", type(failed).__name__))


def _ms(began_s: float) -> float:
    return round((time.perf_counter() - began_s) * 1000, 2)


sale_log = SaleLog()
