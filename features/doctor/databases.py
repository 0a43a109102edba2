"""Checks the databases as this process uses them: PostgreSQL's version, durability, isolation, connections, standby,
disk and migrations; the version, persistence, eviction, memory and replicas of Redis or Valkey.

PostgreSQL's settings are read in a session of the service's own pool, so what a role or a database overrides is seen.
"""

import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from features.doctor.capacity import disk_check, readable_size
from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.errors.database import WrongDatabase
from shared.postgres.schema_version import current_revision, is_behind, revisions
from shared.process.preconditions import REQUIRED, require_read_committed
from shared.redis.client import Redis
from shared.redis.config_check import NodeReport, node_reports

POSTGRESQL = "PostgreSQL"
VERSION_MIN = 15
SETTINGS = text("SELECT name, setting, reset_val FROM pg_settings")
STATE = text("""SELECT host(inet_server_addr()) AS address, pg_database_size(current_database()) AS bytes,
    (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS connections,
    (SELECT count(*) FROM pg_stat_replication) AS standbys""")
IS_SUPERUSER = text("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")


async def check_postgres(db: AsyncEngine, service: str, *, pool_max: int, production: bool) -> list[Check]:
    """Raises the driver's errors while PostgreSQL does not answer."""
    async with db.connect() as connection:
        rows = (await connection.execute(SETTINGS)).all()
        state = (await connection.execute(STATE)).one()._asdict()
        is_superuser = bool(await connection.scalar(IS_SUPERUSER))
    settings = {row.name: row.setting for row in rows}
    defaults = {row.name: row.reset_val for row in rows}
    return [
        _version(settings),
        _durability(settings, state["standbys"]),
        await _isolation(db, defaults),
        _connections(settings, state["connections"], pool_max),
        *_standby(state["standbys"], production=production),
        *_archive(settings, production=production),
        *_role(production=production, is_superuser=is_superuser),
        *_disk(settings, state),
        await _migrations(db, service),
    ]


def _version(settings: dict[str, str]) -> Check:
    number = settings["server_version"].partition(" ")[0]
    if int(settings["server_version_num"]) // 10_000 < VERSION_MIN:
        return broken(POSTGRESQL, f"version {number}", f"Upgrade to PostgreSQL {VERSION_MIN} or newer.")
    return ok(POSTGRESQL, f"version {number}")


def _role(*, production: bool, is_superuser: bool) -> list[Check]:
    if not (production and is_superuser):
        return []
    advice = "Use a plain role that owns its schema: postgres_roles.sql of `onsale keys new` makes them."
    return [suspicious(f"{POSTGRESQL} role", "this service is a superuser", advice)]


def _durability(settings: dict[str, str], standbys: int) -> Check:
    """What is acknowledged to a fan must be on disk, and on the standby if there is a synchronous one."""
    subject, names = f"{POSTGRESQL} durability", ("fsync", "synchronous_commit", "full_page_writes")
    found = ", ".join(f"{name} {settings[name]}" for name in names)
    off = [name for name in names if settings[name] == "off"]
    if off:
        fix = " ".join(f"ALTER SYSTEM SET {name} = on;" for name in off)
        return broken(subject, found, f"A crash loses orders that were acknowledged: {fix} SELECT pg_reload_conf();")
    if settings["synchronous_standby_names"] and not standbys:
        named = f"synchronous_standby_names = {settings['synchronous_standby_names']}, and no standby is connected"
        return broken(subject, named, "Every commit waits for it, and fans are answered 503: bring the standby back.")
    if settings["synchronous_standby_names"] and settings["synchronous_commit"] == "local":
        return suspicious(
            subject, found, "Commits do not wait for the synchronous standby: set synchronous_commit = on."
        )
    return ok(subject, found)


async def _isolation(db: AsyncEngine, defaults: dict[str, str]) -> Check:
    subject = f"{POSTGRESQL} isolation"
    try:
        await require_read_committed(db)
    except WrongDatabase as wrong:
        return broken(subject, "transactions of the service are not READ COMMITTED", str(wrong))
    server = defaults["default_transaction_isolation"]
    if server != REQUIRED:
        advice = "Services set their own; scripts and psql get this one. Remove it from the server, role or database."
        return suspicious(subject, f"default_transaction_isolation is {server}", advice)
    return ok(subject, REQUIRED)


def _connections(settings: dict[str, str], used: int, pool_max: int) -> Check:
    """One connection beside the pool is for LISTEN, migrations or a person."""
    subject, reserved = f"{POSTGRESQL} connections", ("superuser_reserved_connections", "reserved_connections")
    limit = int(settings["max_connections"]) - sum(int(settings.get(name, 0)) for name in reserved)
    found = f"{used / limit:.0%} of {limit} in use; a process takes up to {pool_max + 1}"
    if pool_max + 1 > limit:
        return broken(subject, found, "Raise max_connections, or lower …_POSTGRES_POOL_MAX.")
    if used + pool_max + 1 > limit:
        return suspicious(subject, found, "Another process would not fit: raise max_connections, or lower the pools.")
    return ok(subject, found)


def _standby(standbys: int, *, production: bool) -> list[Check]:
    subject = f"{POSTGRESQL} standby"
    if standbys:
        return [ok(subject, f"{standbys} connected")]
    advice = "If the server is lost, sales stop until a backup is restored. See docs/operate/databases.md."
    return [suspicious(subject, "none is connected", advice)] if production else []


def _archive(settings: dict[str, str], *, production: bool) -> list[Check]:
    subject, mode = f"{POSTGRESQL} archive", settings["archive_mode"]
    if mode != "off":
        return [ok(subject, f"archive_mode {mode}")]
    advice = "A lost disk takes what was sold since the last backup. See docs/operate/backup.md."
    return [suspicious(subject, "archive_mode off", advice)] if production else []


def _disk(settings: dict[str, str], state: dict[str, Any]) -> list[Check]:
    """Free space is seen only if the server is on this machine and its role may read `data_directory`."""
    subject, size = f"{POSTGRESQL} disk", readable_size(state["bytes"])
    try:
        if state["address"] is None or ip_address(state["address"]).is_loopback:
            usage = shutil.disk_usage(Path(settings["data_directory"]))
            return [disk_check(subject, usage.free, usage.total, more=f"; the database has {size}")]
    except (KeyError, OSError):
        pass
    return [ok(subject, f"the database has {size}; free space is not visible over SQL: watch it on the server")]


async def _migrations(db: AsyncEngine, service: str) -> Check:
    subject, head = "Migrations", revisions(service)[-1]
    reached = await current_revision(db, service)
    if is_behind(service, reached):
        return broken(subject, f"at {reached or 'nothing'}, this version needs {head}", "Run `onsale migrate`.")
    if reached != head:
        return suspicious(subject, f"at {reached}, newer than this version", "Roll the services to the newer version.")
    return ok(subject, f"at {head}")


# -- Redis -------------------------------------------------------------------------------------------------------------


REDIS = "Redis"
MEMORY_HIGH, MEMORY_FULL = 0.60, 0.80  # as the alarms RedisMemoryHigh and RedisMemoryVeryHigh
FIXES = {
    "older than 6.2": "Upgrade it.",
    "appendonly is not yes": "A restart loses the line until it is rebuilt: CONFIG SET appendonly yes; CONFIG REWRITE.",
    "appendfsync is no": "A crash loses what the system had not written: CONFIG SET appendfsync everysec.",
    "maxmemory-policy is not noeviction": "It deletes places and seats when it is full: "
    "CONFIG SET maxmemory-policy noeviction; CONFIG REWRITE.",
}


async def check_redis(redis: Redis, *, production: bool) -> list[Check]:
    """Raises `RedisUnfit` for a server of another kind than the URL names, `ConnectionError` if none answers."""
    nodes, complete = await node_reports(redis)
    faults = [broken(_named(REDIS, node, nodes), fault, FIXES[fault]) for node in nodes for fault in node.faults]
    if not faults:
        found = {f"{_product(node.info)}, appendonly yes, noeviction" for node in nodes}
        faults = [ok(REDIS, "; ".join(sorted(found)))]
    if not complete:
        faults.append(broken(REDIS, "a primary of the cluster does not answer", "Bring it back, or its replica up."))
    memory = [_memory(_named(f"{REDIS} memory", node, nodes), node.info) for node in nodes]
    return [*faults, *memory, *_writes(nodes), *_replicas(nodes, production=production)]


def _product(info: dict[str, Any]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def _named(subject: str, node: NodeReport, nodes: list[NodeReport]) -> str:
    return subject if len(nodes) == 1 else f"{subject} {node.address}"


def _memory(subject: str, info: dict[str, Any]) -> Check:
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if not limit:
        advice = "Set maxmemory below what the machine has: full, it refuses writes; without it the system kills it."
        return suspicious(subject, "no maxmemory", advice)
    found = f"{used / limit:.0%} of {readable_size(limit)} used"
    if used > MEMORY_FULL * limit:
        return broken(subject, found, "When it is full nobody can join or reserve: raise maxmemory.")
    if used > MEMORY_HIGH * limit:
        return suspicious(subject, found, "Raise maxmemory before the sale.")
    return ok(subject, found)


def _writes(nodes: list[NodeReport]) -> list[Check]:
    """The append-only file: its last write and its last rewrite."""
    return [
        broken(_named(f"{REDIS} file", node, nodes), f"{name} is {node.info[name]}", "Its disk is full or broken.")
        for node in nodes
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status")
        if node.info.get(name, "ok") != "ok"
    ]


def _replicas(nodes: list[NodeReport], *, production: bool) -> list[Check]:
    checks = []
    for node in nodes:
        subject, info = _named(f"{REDIS} replicas", node, nodes), node.info
        if not node.is_primary:
            if info.get("master_link_status") != "up":
                checks.append(suspicious(subject, "this replica has lost its primary", "See its log and its network."))
        elif replicas := int(info.get("connected_slaves", 0)):
            checks.append(ok(subject, f"{replicas} connected"))
        elif production:
            advice = "Without one, a lost Redis is rebuilt from PostgreSQL, in seconds. See docs/operate/redis.md."
            checks.append(suspicious(subject, "none", advice))
    return checks
