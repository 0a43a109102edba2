"""Redis or Valkey as several processes, made with plain commands: a cluster, or a primary with replicas and sentinels.

Replicas sign in as a user of their own, so that they can be cut off from their primary: what fans are told then is
nowhere else.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from onsale.local.binaries import find_redis
from onsale.local.ports import free_port
from tests.drills.fleet import HOST, Program, until
from tests.support.engines.engines import fast_place

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


def program(name: str) -> Path | None:
    """The engine that comes with us, or Debian's."""
    if name == "valkey":
        return find_redis({})
    found = shutil.which(name)
    return Path(found) if found else None


class Node(Program):
    """One process, with a connection of its own for whoever steers it."""

    def __init__(self, db: Path, folder: Path, configuration: str, *options: str, **values: Any) -> None:
        self.port, self.bus_port = free_port(), free_port()
        home = folder / str(self.port)
        home.mkdir(parents=True)
        file = home / "engine.conf"
        file.write_text(configuration.format(port=self.port, bus_port=self.bus_port, home=home, **values))
        super().__init__([str(db), str(file), *options], home / "engine.log")
        self.client = redis.Redis(host=HOST, port=self.port, socket_timeout=5, decode_responses=True, protocol=2)

    def execute(self, *command: Any) -> Any:
        return self.client.execute_command(*command)

    def cut_off_replicas(self) -> None:
        """From now on they hear nothing of this primary."""
        self.execute("ACL SETUSER", "replica", "off")
        self.execute("CLIENT KILL", "TYPE", "replica")

    @property
    def role(self) -> str:
        return str(self.client.info("replication")["role"])

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def in_step(self) -> bool:
        return bool(self.client.info("replication").get("master_link_status") == "up")


class Group:
    """Some nodes, ended together."""

    url: str
    engines: list[Node]

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            until(node.client.ping, what="an engine")

    def forget(self) -> None:
        """Loses everything."""
        for node in self.engines:
            node.client.flushall()

    def primary_of(self, key: str) -> Node:
        """Who holds this key now."""
        raise NotImplementedError

    def mend(self, node: Node) -> None:
        """One that died comes back, as a replica of whoever took its place."""
        node.start()
        until(node.in_step, what="a replica")

    def replicas_of(self, primary: Node) -> list[Node]:
        """Who follows it, in step."""
        told = ((node, node.client.info("replication")) for node in self.engines if node.answers())
        return [
            node
            for node, said in told
            if said.get("master_port") == primary.port and said.get("master_link_status") == "up"
        ]

    def end(self) -> None:
        for node in self.nodes:
            node.end(signal.SIGKILL)
            node.client.close()


class Cluster(Group):
    """Three primaries that share the slots, and a replica of each if wanted."""

    def __init__(self, db: Path, folder: Path, *, replicas: bool) -> None:
        silent_ms = 1000 if replicas else 10_000  # nobody is given up whom nobody can replace
        clustered = CONFIGURATION + CLUSTERED
        super().__init__([Node(db, folder, clustered, silent_ms=silent_ms) for _ in range(6 if replicas else 3)])
        self.engines, primaries, others = self.nodes, self.nodes[:3], self.nodes[3:]
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
        until(lambda: all(replica.in_step() for replica in others), what="the replicas")

    def _cluster_info(self, node: Node) -> dict[str, str]:
        return dict(node.execute("CLUSTER INFO"))

    def _is_complete(self, node: Node) -> bool:
        """It knows who holds each slot; a cluster that need not be covered whole is "ok" before."""
        told = self._cluster_info(node)
        return told["cluster_state"] == "ok" and told["cluster_slots_assigned"] == str(SLOTS)

    def primary_of(self, key: str) -> Node:
        """Who holds this key now."""
        alive = next(node for node in self.nodes if node.answers())
        slot = int(alive.execute("CLUSTER KEYSLOT", key))
        rows = alive.client.execute_command("CLUSTER SLOTS")
        port = next(int(row[2][1]) for row in rows if row[0] <= slot <= row[1])
        return next(node for node in self.nodes if node.port == port)


class Watched(Group):
    """A primary with replicas, and sentinels that agree on its name."""

    def __init__(self, db: Path, folder: Path, *, replicas: int, sentinels: int) -> None:
        super().__init__([Node(db, folder, CONFIGURATION) for _ in range(1 + replicas)])
        first, *others = self.nodes
        for replica in others:
            replica.execute("REPLICAOF", HOST, first.port)
        until(lambda: all(replica.in_step() for replica in others), what="the replicas")
        watches = {"name": PRIMARY, "primary": first.port, "quorum": sentinels // 2 + 1}
        watching = Group([Node(db, folder, SENTINEL, "--sentinel", **watches) for _ in range(sentinels)])
        self.engines, self.sentinels = self.nodes, watching.nodes
        self.nodes = [*self.engines, *self.sentinels]
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{PRIMARY}"
        until(lambda: all(self._agrees(node) for node in self.sentinels), what="the sentinels")

    def _agrees(self, node: Node) -> bool:
        told = node.client.sentinel_master(PRIMARY)
        return bool(
            told["num-other-sentinels"] == len(self.sentinels) - 1 and told["num-slaves"] == len(self.engines) - 1
        )

    def primary_of(self, key: str) -> Node:
        """Whoever is the primary holds every key."""
        return next(node for node in self.engines if node.answers() and node.role == "master")

    def mend(self, node: Node) -> None:
        """Nothing to do: there is another replica. One that comes back thinks for a while that it is a primary."""


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder for their files."""
    with tempfile.TemporaryDirectory(prefix="onsale-group-", dir=fast_place()) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three primaries, for all tests of this process; each test uses keys of its own and leaves it whole."""
    with in_memory() as folder:
        running = Cluster(find_redis(os.environ), folder, replicas=False)
        try:
            yield running
        finally:
            running.end()


@pytest.fixture
def watched() -> Iterator[Watched]:
    """A primary and a replica, watched by a single sentinel."""
    with in_memory() as folder:
        running = Watched(find_redis(os.environ), folder, replicas=1, sentinels=1)
        try:
            yield running
        finally:
            running.end()
