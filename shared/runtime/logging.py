"""One JSON line per log record: an event name as data, and whatever fields go with it. Never a token, never an e-mail.
No field can stand in for the line's own `at`, `level`, `event` and `logger`.

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
            line |= _told(record.exc_info[1]) or {"exception": self.formatException(record.exc_info)}
        return orjson.dumps(line, default=str).decode()


def _told(failed: BaseException) -> dict[str, str]:
    """An outage in one line; nothing for what may be a bug, whose traceback is wanted."""
    from shared.web.outages import in_one_line, is_outage  # an operator's command loads no driver to write its lines

    return {"error": in_one_line(failed)} if is_outage(failed) else {}


def write_json_lines(level: int = logging.INFO) -> None:
    """Sends every record of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.access", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def data(**fields: Any) -> dict[str, dict[str, Any]]:
    """`extra=data(event_id=…)` for a log call."""
    return {"data": fields}
