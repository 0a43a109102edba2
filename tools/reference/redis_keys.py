"""Every key in Redis: the line's and the stock's from their `redis_keys.py` and the headers of the Lua scripts that
take them, the others from the modules that write them.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from features.hall import seat_codes
from shared.contracts import frames
from tools.reference.markdown import Section, code, codes, page

ROOT = Path(__file__).parents[2]
NAMES = {"event_id": "EVENT_ID", "epoch": "EPOCH", "lane": "LANE"}
COLUMNS = ("key", "type", "what it holds", "lives", "used by")
TEXT = """Capitals stand for a value; braces are a part of the key: what stands in them decides its slot on a cluster,
so all keys of an event are in one. Everything here can be lost: lines and stocks are built again from PostgreSQL,
frames are published again, and the rest is for seconds or can be done again ([Redis and
Valkey](../operate/redis.md)). What lives *always* or *for its epoch* has no expiry; after a reset a line has new
keys."""
TYPES = {"hash", "zset", "set", "string", "bitmap", "stream"}
ALWAYS = "always"
HEADER = re.compile(r"^-- KEYS\[\d+\+?\] (\w+?)(?:_\d)? (\w+)(?: per lane: (.*))?", re.M)


class Key(NamedTuple):
    """A key: its pattern, its type and what it holds, how long it lives, and the scripts or the service that use it."""

    pattern: str
    kind: str
    text: str
    lives: str
    used_by: tuple[str, ...]


def keys() -> dict[str, list[Key]]:
    """Every key, by the part of the suite that it belongs to."""
    return {"The line": list(_of_line()), "The stock": list(_of_stock()), "Frames": _of_frames(),
            "The event log": _of_log(), "Gateway and console": _of_others()}  # fmt: skip


def redis_keys_page() -> str:
    """docs/reference/redis-keys.md"""
    return page("Redis keys", TEXT, (
        Section(heading, COLUMNS, [
            (code(key.pattern), key.kind, key.text, key.lives, codes(key.used_by)) for key in found
        ]) for heading, found in keys().items()
    ))  # fmt: skip


def scripts(service: str) -> dict[str, dict[str, str]]:
    """The type of each key of each script of a service, by name, as its header says; of a list it says none."""
    found, part = dict[str, dict[str, str]](), f"features/*/{service}"
    folders = [ROOT / "services" / service, *ROOT.glob(part)]
    for path in sorted((path for folder in folders for path in folder.rglob("*.lua")), key=lambda path: path.stem):
        found[path.stem] = {}
        for name, kind, of_lanes in HEADER.findall(path.read_text(encoding="utf-8")):
            found[path.stem] |= (
                {part.partition(":")[0]: "" for part in of_lanes.split(", ")} if of_lanes else {name: kind}
            )
    return found


def _using(service: str, name: str) -> tuple[str, ...]:
    return tuple(script for script, taken in scripts(service).items() if name in taken)


def _documented(text: str) -> tuple[str, str]:
    """The type and the meaning of `Hash: what it holds.`"""
    kind, _, meaning = " ".join(text.split()).partition(": ")
    return kind.lower(), meaning[:1].upper() + meaning[1:]


def _of_line() -> Iterator[Key]:
    module, lock_ms, lease_s = (
        import_module("services.queue.redis_keys"),
        import_module("services.queue.line.rebuild").REBUILD_MAX_MS,
        import_module("services.queue.places.purchases").LEASE_S,
    )
    expiring = {"rebuild_lock": f"{lock_ms // 1000} s", "purchases_lease": f"{lease_s:g} s"}
    for name, function in inspect.getmembers(module, inspect.isfunction):
        arguments = inspect.signature(function).parameters
        kind, meaning = _documented(function.__doc__ or "")
        if kind not in TYPES:
            continue
        found = function(**{argument: NAMES[argument] for argument in arguments})
        pattern = f"{found[0].rpartition(':')[0]}:0…2" if isinstance(found, tuple) else found
        lives = (expiring | {"reporters": ALWAYS, "room": ALWAYS}).get(name, "for its epoch")
        yield Key(pattern, kind, meaning, lives, _using("queue", name) or ("queue",))


def _of_stock() -> Iterator[Key]:
    module = import_module("services.inventory.redis_keys")
    for name, text in module.PARTS.items():
        field = name.rstrip(":")
        pattern = getattr(module.Keys.of("EVENT_ID"), field) + ("SECTION_ID" if field != name else "")
        yield Key(pattern, *_documented(text), ALWAYS, _using("inventory", field))
    reading = import_module("features.hall.inventory.seat_states").reading_key
    kind, meaning = _documented(reading.__doc__)
    yield Key(reading("EVENT_ID"), kind, meaning, ALWAYS, _using("inventory", "seats"))


def _of_frames() -> list[Key]:
    kept = f"{import_module('shared.messaging.snapshots').LOG_KEPT_S} s after the last frame"
    channels = {frames.line_channel: "queue", frames.stock_channel: "inventory", seat_codes.seats_channel: "inventory"}
    logs = [
        Key(
            frames.log_key(channel("EVENT_ID")),
            "stream",
            f"The latest frames of `{channel('EVENT_ID')}`.",
            kept,
            (owner,),
        )
        for channel, owner in channels.items()
    ]
    watched = seat_codes.seats_watched_key("EVENT_ID")
    text = "Exists while a stream shows the seats of this event: only then they are published."
    return [*logs, Key(watched, "string", text, f"{seat_codes.SEATS_WATCHED_S} s", ("notifier", "inventory"))]


def _of_log() -> list[Key]:
    streams = import_module("shared.messaging.log").STREAMS
    number = f"0…{streams - 1}"
    return [
        Key("log:{NUMBER}", "stream", f"Events of the on-sales whose id hashes to this number, {number}.",
            "by length: `ONSALE_EVENT_LOG_LENGTH_MAX`", ("queue", "inventory", "orders")),
        Key("log:{NUMBER}:published_to:SERVICE", "string",
            "The Redis process that a service's events were published to; on another one they are published again.",
            ALWAYS, ("queue", "inventory", "orders")),
    ]  # fmt: skip


def _of_others() -> list[Key]:
    codes_of, records = (import_module(name) for name in (
        "features.forward_auth.gateway.decision", "features.console.rehearsals"))  # fmt: skip
    days = 86_400
    return [
        Key("gateway:handover:HASH", "string", "The pass that a one-time code of forward-auth stands for.",
            f"{codes_of.CODE_LIFETIME_S} s", ("gateway",)),
        Key("console:rehearsal:{EVENT_ID}", "string", "The last rehearsal of an event.",
            f"{records.KEPT_S // days} days", ("console",)),
        Key("console:rehearsal:{EVENT_ID}:runs", "string", "The console that runs it, or that it is to stop.",
            f"{records.MARK_S} s", ("console",)),
    ]  # fmt: skip
