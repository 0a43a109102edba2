"""Stores every charge and refund in memory and, as JSON lines, in a file.

A row is in the file before it is answered, so a process that is killed loses nothing it has answered. The last row of
an id counts; a last line cut short by a kill is dropped; superseded lines are removed when the file is next opened.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import orjson

from onsale.atomic_file import atomic_write
from onsale.sandbox.behaviours import Method
from onsale.sandbox.charge import Charge, Refund
from onsale.sandbox.problems import RequestRefused, StoreDamaged

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ChargeStore:
    """Lookups are by dictionary or bisection. `charges_max` limits the charges; their amounts limit the refunds."""

    def __init__(self, *, path: Path | None = None, charges_max: int) -> None:
        self._path = path
        self._charges_max = charges_max
        self._file: BinaryIO | None = None
        self._last_us = 0
        self._reset()
        if path is not None:
            self._load(path)

    def _reset(self) -> None:
        self._charges: dict[str, Charge] = {}
        self._order: list[str] = []
        self._by_key: dict[str, str] = {}
        self._by_reference: dict[str, list[str]] = {}
        self._refunds: dict[str, Refund] = {}
        self._refunds_of: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._charges)

    def now(self) -> str:
        """The time now, at least a microsecond after the last call, so that `created_at` orders charges strictly."""
        self._last_us = max(time.time_ns() // 1000, self._last_us + 1)
        return as_rfc3339(EPOCH + timedelta(microseconds=self._last_us))

    def charge(self, charge_id: str) -> Charge:
        try:
            return self._charges[charge_id]
        except KeyError:
            raise RequestRefused(404, "no_such_charge", "There is no charge of this id.") from None

    def charge_of_key(self, key: str) -> Charge | None:
        charge_id = self._by_key.get(key)
        return None if charge_id is None else self._charges[charge_id]

    def refund_of_key(self, key: str) -> Refund | None:
        return self._refunds.get(key)

    def refunds_of(self, charge_id: str) -> list[Refund]:
        return [self._refunds[key] for key in self._refunds_of.get(charge_id, ())]

    def scheduled(self) -> list[Charge]:
        """Charges whose success is scheduled."""
        return [charge for charge in self._charges.values() if charge.succeeds_at_s is not None]

    def page(self, *, reference: str | None, since: str | None, limit: int) -> tuple[list[Charge], bool]:
        """Charges oldest first, and whether there are more: the newest, or with `since` the oldest from there on."""
        ids = self._order if reference is None else self._by_reference.get(reference, [])
        if since is None:
            chosen = ids[-limit:]
            return [self._charges[charge_id] for charge_id in chosen], len(chosen) < len(ids)
        start = self._start(ids, since)
        return [self._charges[each] for each in ids[start : start + limit]], start + limit < len(ids)

    def _start(self, ids: list[str], since: str) -> int:
        if since.startswith("ch_"):
            after = self.charge(since).created_at
            start = bisect_left(ids, after, key=lambda each: self._charges[each].created_at)
            return start + (start < len(ids) and ids[start] == since)
        try:
            moment = as_rfc3339(datetime.fromisoformat(since.replace(" ", "+")))
        except (ValueError, OverflowError):
            raise RequestRefused(422, "invalid_request", "since: an RFC 3339 time or the id of a charge.") from None
        return bisect_left(ids, moment, key=lambda each: self._charges[each].created_at)

    def put(self, *charges: Charge) -> None:
        """Stores all of them in one write, or none when the store is full."""
        added = sum(charge.id not in self._charges for charge in charges)
        if len(self._charges) + added > self._charges_max:
            raise RequestRefused(503, "books_full", "The sandbox takes no more charges; reset it.")
        self._write(_line(charge) for charge in charges)
        for charge in charges:
            self._remember(charge)

    def put_refund(self, refund: Refund, charge: Charge) -> None:
        self._write([_line(refund), _line(charge)])
        self._remember_refund(refund)
        self._remember(charge)

    def clear(self) -> None:
        self._reset()
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _remember(self, charge: Charge) -> None:
        if charge.id not in self._charges:
            self._order.append(charge.id)
            self._by_key[charge.idempotency_key] = charge.id
            self._by_reference.setdefault(charge.reference, []).append(charge.id)
        self._charges[charge.id] = charge

    def _remember_refund(self, refund: Refund) -> None:
        self._refunds[refund.idempotency_key] = refund
        self._refunds_of.setdefault(refund.charge_id, []).append(refund.idempotency_key)

    def _write(self, lines: Iterable[bytes]) -> None:
        if self._file is not None:
            self._file.write(b"".join(lines))
            self._file.flush()

    def _load(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        lines = 0
        with path.open("rb") as file:
            for lines, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    self._read(line, f"{path}, line {lines}")
        if lines > len(self._charges) + len(self._refunds):
            self._rewrite(path)
        self._file = path.open("ab")

    def _read(self, line: bytes, where: str) -> None:
        try:
            match orjson.loads(line):
                case {"charge": dict(fields)}:
                    self._remember(Charge(**{**fields, "method": Method(fields["method"])}))
                case {"refund": dict(fields)}:
                    self._remember_refund(Refund(**fields))
                case _:
                    raise ValueError("neither a charge nor a refund")
        except (ValueError, TypeError, KeyError) as problem:
            raise StoreDamaged(f"{where}: {problem}") from problem

    def _rewrite(self, path: Path) -> None:
        """Replaces the file by one with a single line for each id."""
        rows: Iterable[Charge | Refund] = chain(self._charges.values(), self._refunds.values())
        atomic_write(path, map(_line, rows))


def as_rfc3339(moment: datetime) -> str:
    """RFC 3339 in UTC, always of the same length, so that texts sort as times do."""
    utc = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(row: Charge | Refund) -> bytes:
    return orjson.dumps({"charge" if isinstance(row, Charge) else "refund": asdict(row)}) + b"\n"
