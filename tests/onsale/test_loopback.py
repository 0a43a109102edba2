"""Ports for servers: free, and not of those that the kernel gives to whoever connects."""

import socket
from pathlib import Path

import pytest

from onsale import loopback
from onsale.child import EngineTrouble
from onsale.loopback import HOST, SERVERS, free_port

CONNECTING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_nobody_who_connects_is_given_a_servers_port() -> None:
    port = free_port()
    assert port in SERVERS
    first = int(CONNECTING.read_text().split()[0]) if CONNECTING.exists() else 49_152
    assert port < first
    with socket.socket() as server:
        server.bind((HOST, port))


def test_a_port_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, taken := free_port()))
        first.listen()
        monkeypatch.setattr(loopback, "SERVERS", range(taken, taken + 2))
        assert free_port() == taken + 1
        second.bind((HOST, taken + 1))
        with pytest.raises(EngineTrouble, match="no free port"):
            free_port()
