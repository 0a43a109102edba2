"""Logs one JSON line per record: an event name and the fields of that event; never a token or an e-mail address.

The line's own `at`, `level`, `event` and `logger` cannot be overwritten by a field.

ERROR means a bug or an outage; an expected refusal is INFO.
"""

import logging
import sys
from typing import Any

import orjson


class JsonLines(logging.Formatter):
    """Formats `log.info("hold.expired", extra={"data": {...}})` as one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = getattr(record, "data", {}) | {
            "at": round(record.created, 3),
            "level": record.levelname,
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= _outage_fields(record.exc_info[1]) or {"exception": self.formatException(record.exc_info)}
        return orjson.dumps(line, default=str).decode()


def _outage_fields(failed: BaseException) -> dict[str, str]:
    """An outage as one short field; nothing for a possible bug, whose traceback is logged instead."""
    from shared.web.outages import in_one_line, is_outage  # only here: `outages` imports the drivers

    return {"error": in_one_line(failed)} if is_outage(failed) else {}


def write_json_lines(level: int = logging.INFO) -> None:
    """Sends every record of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.access", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def data(**fields: Any) -> dict[str, dict[str, Any]]:
    """The fields of a log call: `extra=data(event_id=…)`."""
    return {"data": fields}
