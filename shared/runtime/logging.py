"""Logs one JSON line per record: an event name and the fields of that event; never a token or an e-mail address.

`log = get_logger(__name__)`, then `log.info("hold.expired", event_id=…)`. A line that is written while a request is
served also has the request's id, its event and, if it is traced, the trace's id. The line's own `at`, `level` and
`logger` cannot be overwritten by a field.

ERROR means a bug or an outage; an expected refusal is INFO. Until `write_json_lines` is called, records go to the
standard library's logging.
"""

import logging
import sys
import time
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, BinaryIO, cast

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
