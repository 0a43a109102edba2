"""Which code a measurement depends on, and whether its record is older than that code.

A record carries a digest of that code. It is stale when the code has another one now.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = frozenset({".py", ".sql", ".lua"})
EVERY_SERVICE = ("services", "features")
_LINE = ("services/gateway", "services/queue", "features/proof_of_work/gateway.py")
_STOCK, _ORDERS = ("services/inventory",), ("services/orders",)
_COMMANDS = (  # `onsale up` and `onsale simulate`
    *EVERY_SERVICE, "bench/journey",
    *(f"onsale/{part}" for part in ("local", "server", "simulate", "client", "sandbox", "examples")),
)  # fmt: skip
_SCRIPTS = tuple(
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "web/fans").rglob("*"))
    if path.suffix in (".js", ".css")
)
_MAP = (
    "seats", "price_tiers", *(f"hall/{name}" for name in (
        "cursor", "geometry", "gestures", "overview", "palette", "seat_canvas", "seat_codes", "seat_map", "seat_shapes",
        "view",
    )),
)  # fmt: skip
CODE: Mapping[str, Sequence[str]] = {
    "journey": _COMMANDS,
    "suites": _COMMANDS,
    "replay": _COMMANDS,
    "peer": _COMMANDS,
    "joins": (*_LINE, "bench/line/joins.py", "bench/baselines/textbook_joins.py"),
    "sale_log": (*_LINE, "bench/line/joins.py", "bench/line/joins.py"),
    "status": (*_LINE, "bench/line/status.py", "bench/baselines/bare.py"),
    "admissions": (*_LINE, "bench/line/admissions.py", "bench/line/admissions.py"),
    "reservations": (*_STOCK, "bench/stock/reservations.py", "bench/baselines/textbook_reservations.py"),
    "price_types": (*_STOCK, "bench/stock/reservations.py", "bench/stock/price_types.py"),
    "orders": (*_STOCK, *_ORDERS, "bench/orders", "bench/baselines/textbook_orders.py"),
    "orders_rush": (*_STOCK, *_ORDERS, "bench/orders", "bench/baselines/textbook_orders.py"),
    "order_cost": (*_ORDERS, "bench/orders"),
    "checkout": (*_STOCK, *_ORDERS, "bench/orders", "bench/baselines/textbook_orders.py", "onsale/sandbox"),
    "slow_provider": (*_STOCK, *_ORDERS, "bench/orders", "onsale/sandbox"),
    "refill": ("services/queue", "bench/line/refill.py"),
    "memory": ("services/queue", "bench/line/memory.py"),
    "growth": (*EVERY_SERVICE, "bench/scale/growth.py", "bench/scale/growth_line.py", "bench/scale/growth_stock.py"),
    "designs": (*_LINE, "bench/line", "bench/baselines/line_designs.py"),
    "stock": (*_STOCK, "bench/stock", "bench/baselines/stock_designs.py", "tests/support/engines/tcp_proxy.py"),
    "last_tickets": (*_STOCK, "bench/stock", "bench/baselines/stock_designs.py"),
    "endings": (*_STOCK, "bench/stock", "bench/baselines/hold_expiry_workers.py"),
    "isolation": (*_STOCK, "bench/stock/isolation.py", "bench/baselines/textbook_reservations.py"),
    "reopen": (*_STOCK, "bench/stock/redis_rebuild.py"),
    "streams": ("services/notifier", "bench/streams", "bench/baselines/plain_streams.py"),
    "processes": (*EVERY_SERVICE, "bench/scale/processes.py", "bench/scale/fleets.py"),
    "clustered": (*_LINE, *_STOCK, "bench/scale/clustered.py"),
    "soak": ("services/notifier", "bench/streams"),
    "pages": ("services/gateway", "bench/pages", *_SCRIPTS),
    "map": ("bench/pages", *(f"web/fans/{name}.js" for name in _MAP)),
    "night": (*EVERY_SERVICE, "bench/night", "onsale/sandbox"),
}
EVERYWHERE = ("shared", "bench/harness", "bench/baselines/service.py", "bench/baselines/service.py")


def digest(name: str, root: Path = ROOT) -> str:
    """The digest of all code that the measurement of this name depends on, by path and content."""
    found = hashlib.sha256()
    for path in sorted({path for place in (*CODE[name], *EVERYWHERE) for path in _files(root / place)}):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _files(place: Path) -> list[Path]:
    """The source files below a folder, or the file itself. Raises `FileNotFoundError` where neither is."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise FileNotFoundError(place)
    return [path for path in place.rglob("*") if path.suffix in SUFFIXES]
