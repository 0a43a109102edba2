"""Starts Redis or Valkey as several processes: a cluster, or a primary with replicas and sentinels.

Replicas log in as a user of their own, so that a test can cut them off: what the primary acknowledges then is on no
other node.
"""

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from tests.support.engines.engines import fast_directory
from tests.support.running.program import Program
from tests.support.wait import until

SLOTS = 16384
PRIMARY = "onsale"
CONFIGURATION = """\
port {port}
bind 127.0.0.1
dir {home}
appendonly yes
save ""
repl-diskless-sync-delay 0
repl-ping-replica-period 1
user default on nopass ~* &* +@all
user replica on >of-the-drills +psync +replconf +ping
masteruser replica
masterauth of-the-drills
"""
CLUSTERED = """\
cluster-enabled yes
cluster-port {bus_port}
cluster-config-file nodes.conf
cluster-node-timeout {silent_ms}
cluster-require-full-coverage no
"""
SENTINEL = """\
port {port}
bind 127.0.0.1
dir {home}
sentinel monitor {name} 127.0.0.1 {primary} {quorum}
sentinel down-after-milliseconds {name} 1000
sentinel failover-timeout {name} 4000
"""


class Node(Program):
    """One process, with a client for the test that controls it."""

    def __init__(self, binary: Path, folder: Path, configuration: str, *options: str, **values: Any) -> None:
        self.port, self.bus_port = free_port(), free_port()
        home = folder / str(self.port)
        home.mkdir(parents=True)
        file = home / "redis.conf"
        file.write_text(configuration.format(port=self.port, bus_port=self.bus_port, home=home, **values))
        super().__init__([str(binary), str(file), *options], home / "redis.log")
        self.client = redis.Redis(host=HOST, port=self.port, socket_timeout=5, decode_responses=True, protocol=2)

    def execute(self, *command: Any) -> Any:
        return self.client.execute_command(*command)

    def cut_off_replicas(self) -> None:
        """Replicas receive nothing from this primary any more."""
        self.execute("ACL SETUSER", "replica", "off")
        self.execute("CLIENT KILL", "TYPE", "replica")

    @property
    def role(self) -> str:
        return str(self.client.info("replication")["role"])

    def is_reachable(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def is_in_sync(self) -> bool:
        return bool(self.client.info("replication").get("master_link_status") == "up")


class Group:
    """Nodes that are started and stopped together. `redis_nodes` are those with data, without sentinels."""

    url: str
    redis_nodes: list[Node]

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            until(node.client.ping, what="a node")

    def flush_all(self) -> None:
        """Deletes all data."""
        for node in self.redis_nodes:
            node.client.flushall()

    def primary_of(self, key: str) -> Node:
        """The primary that holds this key now."""
        raise NotImplementedError

    def restore(self, node: Node) -> None:
        """Starts a dead node again, as a replica of the node that was promoted."""
        node.start()
        until(node.is_in_sync, what="a replica")

    def replicas_of(self, primary: Node) -> list[Node]:
        """The replicas of this primary that are in sync."""
        states = ((node, node.client.info("replication")) for node in self.redis_nodes if node.is_reachable())
        return [
            node
            for node, state in states
            if state.get("master_port") == primary.port and state.get("master_link_status") == "up"
        ]

    def end(self) -> None:
        for node in self.nodes:
            node.end(signal.SIGKILL)
            node.client.close()


class Cluster(Group):
    """Three primaries that share the slots, each with a replica if `replicas`."""

    def __init__(self, binary: Path, folder: Path, *, replicas: bool) -> None:
        silent_ms = 1000 if replicas else 10_000  # a primary without replicas must not be given up
        clustered = CONFIGURATION + CLUSTERED
        super().__init__([Node(binary, folder, clustered, silent_ms=silent_ms) for _ in range(6 if replicas else 3)])
        self.redis_nodes, primaries, others = self.nodes, self.nodes[:3], self.nodes[3:]
        self.url = "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in primaries)
        for number, node in enumerate(primaries):
            node.execute("CLUSTER ADDSLOTS", *range(SLOTS * number // 3, SLOTS * (number + 1) // 3))
        for number, node in enumerate(self.nodes):
            node.execute("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.execute("CLUSTER MEET", HOST, self.nodes[0].port, self.nodes[0].bus_port)
        count = str(len(self.nodes))
        until(
            lambda: all(self._cluster_info(node)["cluster_known_nodes"] == count for node in self.nodes),
            what="the cluster's gossip",
        )
        for primary, replica in zip(primaries, others, strict=False):
            replica.execute("CLUSTER REPLICATE", primary.execute("CLUSTER MYID"))
        until(lambda: all(self._is_complete(node) for node in self.nodes), what="the cluster")
        until(lambda: all(replica.is_in_sync() for replica in others), what="the replicas")

    def _cluster_info(self, node: Node) -> dict[str, str]:
        return dict(node.execute("CLUSTER INFO"))

    def _is_complete(self, node: Node) -> bool:
        """This node knows the owner of each slot; without full coverage its state is "ok" earlier."""
        info = self._cluster_info(node)
        return info["cluster_state"] == "ok" and info["cluster_slots_assigned"] == str(SLOTS)

    def primary_of(self, key: str) -> Node:
        """The primary that holds this key now."""
        alive = next(node for node in self.nodes if node.is_reachable())
        slot = int(alive.execute("CLUSTER KEYSLOT", key))
        rows = alive.client.execute_command("CLUSTER SLOTS")
        port = next(int(row[2][1]) for row in rows if row[0] <= slot <= row[1])
        return next(node for node in self.nodes if node.port == port)


class SentinelGroup(Group):
    """A primary with replicas, and sentinels that watch it."""

    def __init__(self, binary: Path, folder: Path, *, replicas: int, sentinels: int) -> None:
        super().__init__([Node(binary, folder, CONFIGURATION) for _ in range(1 + replicas)])
        first, *others = self.nodes
        for replica in others:
            replica.execute("REPLICAOF", HOST, first.port)
        until(lambda: all(replica.is_in_sync() for replica in others), what="the replicas")
        monitored = {"name": PRIMARY, "primary": first.port, "quorum": sentinels // 2 + 1}
        sentinels_group = Group([Node(binary, folder, SENTINEL, "--sentinel", **monitored) for _ in range(sentinels)])
        self.redis_nodes, self.sentinels = self.nodes, sentinels_group.nodes
        self.nodes = [*self.redis_nodes, *self.sentinels]
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{PRIMARY}"
        until(lambda: all(self._agrees(node) for node in self.sentinels), what="the sentinels")

    def _agrees(self, node: Node) -> bool:
        state = node.client.sentinel_master(PRIMARY)
        return bool(
            state["num-other-sentinels"] == len(self.sentinels) - 1 and state["num-slaves"] == len(self.redis_nodes) - 1
        )

    def primary_of(self, key: str) -> Node:
        """The one primary holds every key."""
        return next(node for node in self.redis_nodes if node.is_reachable() and node.role == "master")

    def restore(self, node: Node) -> None:
        """Does nothing: a restarted primary believes for a while that it still is the primary."""


@contextmanager
def memory_directory() -> Iterator[Path]:
    """A temporary directory in memory if there is enough."""
    with tempfile.TemporaryDirectory(prefix="onsale-group-", dir=fast_directory()) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three primaries for all tests of this process; a test uses its own keys and leaves every node running."""
    with memory_directory() as folder:
        running = Cluster(find_redis(os.environ), folder, replicas=False)
        try:
            yield running
        finally:
            running.end()


@pytest.fixture
def sentinel_group() -> Iterator[SentinelGroup]:
    """A primary, a replica and one sentinel."""
    with memory_directory() as folder:
        running = SentinelGroup(find_redis(os.environ), folder, replicas=1, sentinels=1)
        try:
            yield running
        finally:
            running.end()
