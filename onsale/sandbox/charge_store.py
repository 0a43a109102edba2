"""Stores every charge and refund in memory and, as JSON lines, in a file.

A row is in the file before it is answered, so a process that is killed loses nothing it has answered. The last row of
an id counts; a last line cut short by a kill is dropped; superseded lines are removed when the file is next opened.
"""

from bisect import bisect_left
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import orjson

from onsale.atomic_file import atomic_write
from onsale.sandbox.behaviours import BEHAVIOURS
from onsale.sandbox.charge import Charge, Refund
from onsale.sandbox.problems import RequestRefused, StoreDamaged


class ChargeStore:
    """Lookups are by dictionary or bisection. `charges_max` limits the charges; their amounts limit the refunds."""

    def __init__(self, *, path: Path | None = None, charges_max: int) -> None:
        self._charges_max = charges_max
        self._file: BinaryIO | None = None
        self._last = datetime.min.replace(tzinfo=UTC)
        self._reset()
        if path is not None:
            self._load(path)

    def _reset(self) -> None:
        self._charges: dict[str, Charge] = {}
        self._by_key: dict[str, str] = {}
        self._by_reference: dict[str | None, list[str]] = defaultdict(list)  # under None those of all references
        self._refunds: dict[str, Refund] = {}  # by idempotency key
        self._refunds_of: dict[str, list[Refund]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._charges)

    def now(self) -> str:
        """The time now, at least a microsecond after the last call, so that `created_at` orders charges strictly."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return as_rfc3339(self._last)

    def charge(self, charge_id: str) -> Charge:
        try:
            return self._charges[charge_id]
        except KeyError:
            raise RequestRefused(404, "no_such_charge", "There is no charge of this id.") from None

    def charge_of_key(self, key: str) -> Charge | None:
        return self._charges.get(self._by_key.get(key, ""))

    def refund_of_key(self, key: str) -> Refund | None:
        return self._refunds.get(key)

    def refunds_of(self, charge_id: str) -> list[Refund]:
        return self._refunds_of.get(charge_id, [])

    def scheduled(self) -> list[Charge]:
        """Charges whose success is scheduled."""
        return [charge for charge in self._charges.values() if charge.succeeds_at_s is not None]

    def page(self, *, reference: str | None, since: str | None, limit: int) -> tuple[list[Charge], bool]:
        """Charges oldest first, and whether there are more: the newest, or with `since` the oldest from there on."""
        ids = self._by_reference.get(reference, [])
        start = self._start(ids, since) if since is not None else max(0, len(ids) - limit)
        chosen = ids[start : start + limit]
        has_more = start > 0 if since is None else start + limit < len(ids)
        return [self._charges[charge_id] for charge_id in chosen], has_more

    def _start(self, ids: list[str], since: str) -> int:
        if since.startswith("ch_"):
            moment = self.charge(since).created_at
        else:
            try:
                moment = as_rfc3339(datetime.fromisoformat(since.replace(" ", "+")))
            except (ValueError, OverflowError):
                raise RequestRefused(422, "invalid_request", "since: an RFC 3339 time or the id of a charge.") from None
        start = bisect_left(ids, moment, key=lambda each: self._charges[each].created_at)
        return start + (ids[start : start + 1] == [since])

    def put(self, *charges: Charge, refund: Refund | None = None) -> None:
        """Stores all of them in one write, or none when the store is full."""
        added = sum(charge.id not in self._charges for charge in charges)
        if len(self._charges) + added > self._charges_max:
            raise RequestRefused(503, "books_full", "The sandbox takes no more charges; reset it.")
        rows: list[Charge | Refund] = [*charges, *([refund] if refund else [])]
        if self._file is not None:
            self._file.write(b"".join(map(_line, rows)))
            self._file.flush()
        for row in rows:
            self._remember(row)

    def clear(self) -> None:
        self._reset()
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _remember(self, row: Charge | Refund) -> None:
        if isinstance(row, Refund):
            self._refunds[row.idempotency_key] = row
            self._refunds_of[row.charge_id].append(row)
            return
        if row.id not in self._charges:
            self._by_key[row.idempotency_key] = row.id
            for reference in (None, row.reference):
                self._by_reference[reference].append(row.id)
        self._charges[row.id] = row

    def _load(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        lines = 0
        with path.open("rb") as file:
            for lines, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    self._remember(_row(line, f"{path}, line {lines}"))
        if lines > len(self._charges) + len(self._refunds):
            rows: list[Charge | Refund] = [*self._charges.values(), *self._refunds.values()]
            atomic_write(path, map(_line, rows))
        self._file = path.open("ab")


def as_rfc3339(moment: datetime) -> str:
    """RFC 3339 in UTC, always of the same length, so that texts sort as times do."""
    utc = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _row(line: bytes, where: str) -> Charge | Refund:
    try:
        match orjson.loads(line):
            case {"charge": dict(fields)} if fields["method"] in BEHAVIOURS:
                return Charge(**fields)
            case {"refund": dict(fields)}:
                return Refund(**fields)
        raise ValueError("neither a charge nor a refund")
    except (ValueError, TypeError, KeyError) as problem:
        raise StoreDamaged(f"{where}: {problem}") from problem


def _line(row: Charge | Refund) -> bytes:
    return orjson.dumps({"charge" if isinstance(row, Charge) else "refund": row}, option=orjson.OPT_APPEND_NEWLINE)
