"""The sandbox's charge store survives a restart and a kill, and refuses a damaged file."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from onsale.sandbox.__main__ import main
from onsale.sandbox.charge_store import ChargeStore
from onsale.sandbox.problems import StoreDamaged
from tests.onsale.sandbox_client import SandboxClient, error_code, sandbox
from tests.support.wait import wait_until


async def test_a_full_charge_store_refuses_charges_and_a_reset_empties_it(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(charges_max=2, books_path=books_path) as client:
        await client.charged(key="1")
        assert error_code(await client.charge("double_success", key="2")) == "books_full"
        assert len(await client.list_charges()) == 1
        await client.http.post("/control", json={"reset": True})
        assert await client.list_charges() == []
        fresh = await client.charged(key="1")
    async with sandbox(books_path=books_path) as client:
        assert await client.list_charges() == [fresh]


async def test_a_late_success_comes_although_the_sandbox_restarts_first(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path, late_after_s=0.3) as client:
        charge = await client.charged("late_success")
        refunded = await client.charged(key="2")
        await client.refund(refunded, 100)
    async with sandbox(books_path=books_path) as client:
        assert (await client.read_charge(charge))["status"] == "processing"
        await client.wait_for_status(charge, "succeeded")
        assert (await client.charge("late_success")).json() == charge
        assert (await client.refund(refunded, 100)).headers["Idempotency-Replayed"] == "true"
        assert (await client.read_charge(refunded))["refunded_minor"] == 100


async def test_a_truncated_last_line_is_dropped_and_any_other_damage_prevents_the_start(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path) as client:
        await client.charged()
    line = books_path.read_bytes()
    books_path.write_bytes(line + line[: len(line) // 2])
    store = ChargeStore(path=books_path, charges_max=10)
    assert len(store) == 1
    store.close()
    assert books_path.read_bytes() == line
    books_path.write_bytes(line[: len(line) // 2] + b"\n" + line)
    with pytest.raises(StoreDamaged, match="line 1"):
        ChargeStore(path=books_path, charges_max=10)


@contextmanager
def sandbox_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The sandbox as a process on a free port, and its address; it is killed afterwards."""
    command = [sys.executable, "-m", "onsale.sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().rpartition(" ")[2].strip()
        finally:
            process.kill()


async def test_a_killed_sandbox_loses_no_charge_and_a_stopped_one_waits_for_no_answer(tmp_path: Path) -> None:
    options = ("--books", str(tmp_path / "books.jsonl"))
    with sandbox_process(*options) as (process, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            client = SandboxClient(http)
            await asyncio.gather(*(client.charge(key=str(number)) for number in range(50)))
            http.timeout = httpx.Timeout(0.2)
            with pytest.raises(httpx.ReadTimeout):
                await client.charge("timeout_after_success", key="hung")
            http.timeout = httpx.Timeout(5)
            before = await client.list_charges()
            process.kill()
    assert [charge["status"] for charge in before] == ["succeeded"] * 51
    with sandbox_process(*options) as (process, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            client = SandboxClient(http)
            assert await client.list_charges() == before
            assert (await client.charge("timeout_after_success", key="hung")).status_code == 200
            hanging = asyncio.create_task(client.charge("timeout_after_success", key="hanging"))

            async def booked() -> bool:
                return len(await client.list_charges()) == 52

            await wait_until(booked)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 5)
            await asyncio.gather(hanging, return_exceptions=True)
            assert process.stderr is not None
            assert process.stderr.read() == "", "after a second it would cancel what it waits for, and say so"


def test_a_sandbox_that_cannot_start_prints_the_reason_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("{}\n{}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        for option, value in (
            ("--books", str(damaged)),
            ("--webhook-url", "ftp://x"),
            ("--port", "99999"),
            ("--port", used),
        ):
            assert main(["--port", "0", option, value]) == 2
            error = capsys.readouterr().err
            assert (error.startswith("sandbox: "), error.count("\n")) == (True, 1)
