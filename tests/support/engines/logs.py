"""Servers of event logs for tests: Valkey, NATS and a mock of Kafka. Each can be killed and restarted."""

import os
import re
import signal
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import redis

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from tests.support.programs import need
from tests.support.running.program import Program
from tests.support.wait import until

MOCK = """
import confluent_kafka, signal
mock = confluent_kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3})
brokers = mock.list_topics(timeout=10).brokers.values()
print("kafka://" + ",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
signal.pause()
"""


class LogServer(Program):
    """One server of an event log, reached at `url`."""

    url: str

    def wait(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Kills the server; acknowledged messages are on its disk."""
        self.end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()
        self.wait()


class ClusterNode(LogServer):
    """A cluster of one Valkey: it owns every slot and refuses commands across slots."""

    def __init__(self, home: Path) -> None:
        port = free_port()
        self.url = f"redis://{HOST}:{port}/0"
        options = {
            "port": port, "cluster-port": free_port(), "bind": HOST, "dir": home, "appendonly": "yes",
            "appendfsync": "always", "save": "", "cluster-enabled": "yes", "cluster-config-file": home / "nodes.conf",
            "cluster-require-full-coverage": "no",
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        super().__init__([str(find_redis(os.environ)), *arguments], home / "valkey.log")

    def wait(self) -> None:
        client = redis.Redis.from_url(self.url)
        until(client.ping, what="Valkey")
        if client.cluster("info")["cluster_slots_assigned"] != "16384":
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: client.cluster("info")["cluster_state"] == "ok", what="a cluster of one")
        client.close()


class Nats(LogServer):
    """NATS with JetStream; a node of a cluster if `peers` lists cluster ports."""

    def __init__(
        self, home: Path, *, credentials: str = "", cluster_port: int = 0, peers: tuple[int, ...] = ()
    ) -> None:
        program = need("nats-server")
        home.mkdir(exist_ok=True)
        self.home, self.port, self._monitor = home, free_port(), free_port()
        user, _, password = credentials.partition(":")
        userinfo = f"{user}:{quote(password, safe='')}@" if credentials else ""
        self.url = f"nats://{userinfo}{HOST}:{self.port}"
        options = ["-a", HOST, "-p", str(self.port), "-m", str(self._monitor), "-js", "-sd", str(home), "-n", home.name]
        if credentials:
            options += ["--user", user, "--pass", password]
        if peers:
            routes = ",".join(f"nats://{HOST}:{port}" for port in peers)
            options += ["--cluster_name", "logs", "--cluster", f"nats://{HOST}:{cluster_port}", "--routes", routes]
        super().__init__([program, *options], home / "nats.log")

    def wait(self) -> None:
        """Returns when JetStream accepts messages."""
        url = f"http://{HOST}:{self._monitor}/healthz"
        until(lambda: httpx.get(url, trust_env=False).json()["status"] == "ok", what="NATS")


class MockKafka(LogServer):
    """The mock brokers of librdkafka. They store nothing, so they prove nothing about durability."""

    def __init__(self, home: Path) -> None:
        super().__init__([sys.executable, "-c", MOCK], home / "kafka.log")

    def wait(self) -> None:
        until(lambda: "\nkafka://" in "\n" + self.log_text(), what="the mock of Kafka")
        self.url = re.findall(r"^kafka://\S+", self.log_text(), re.M)[-1]

    def kill(self) -> None:
        """Freezes the process instead: the mock loses all messages when it ends."""
        self.send(signal.SIGSTOP)

    def restart(self) -> None:
        self.send(signal.SIGCONT)
