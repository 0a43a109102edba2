"""Checks Redis or Valkey as this process uses it: version, persistence, eviction, memory, replicas."""

from typing import Any

from shared.checks.capacity import readable_size
from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.redis.client import Redis
from shared.redis.config_check import NodeReport, node_reports

SUBJECT = "Redis"
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
    faults = [broken(_named(SUBJECT, node, nodes), fault, FIXES[fault]) for node in nodes for fault in node.faults]
    if not faults:
        found = {f"{_product(node.info)}, appendonly yes, noeviction" for node in nodes}
        faults = [ok(SUBJECT, "; ".join(sorted(found)))]
    if not complete:
        faults.append(broken(SUBJECT, "a primary of the cluster does not answer", "Bring it back, or its replica up."))
    memory = [_memory(_named(f"{SUBJECT} memory", node, nodes), node.info) for node in nodes]
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
        broken(_named(f"{SUBJECT} file", node, nodes), f"{name} is {node.info[name]}", "Its disk is full or broken.")
        for node in nodes
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status")
        if node.info.get(name, "ok") != "ok"
    ]


def _replicas(nodes: list[NodeReport], *, production: bool) -> list[Check]:
    checks = []
    for node in nodes:
        subject, info = _named(f"{SUBJECT} replicas", node, nodes), node.info
        if not node.is_primary:
            if info.get("master_link_status") != "up":
                checks.append(suspicious(subject, "this replica has lost its primary", "See its log and its network."))
        elif replicas := int(info.get("connected_slaves", 0)):
            checks.append(ok(subject, f"{replicas} connected"))
        elif production:
            advice = "Without one, a lost Redis is rebuilt from PostgreSQL, in seconds. See docs/operate/redis.md."
            checks.append(suspicious(subject, "none", advice))
    return checks
