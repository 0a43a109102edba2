"""The sandbox's books outlive a restart and a kill, and say so when they are damaged."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from onsale.sandbox.__main__ import main
from onsale.sandbox.charge_store import ChargeStore
from onsale.sandbox.problems import StoreDamaged
from tests.onsale.sandbox_fan import Fan, error_code, sandbox
from tests.support.wait import wait_until


async def test_full_books_take_no_more_and_a_reset_empties_them(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(charges_max=2, books_path=books_path) as fan:
        await fan.charged(key="1")
        assert error_code(await fan.charge("double_success", key="2")) == "books_full"
        assert len(await fan.books()) == 1
        await fan.http.post("/control", json={"reset": True})
        assert await fan.books() == []
        fresh = await fan.charged(key="1")
    async with sandbox(books_path=books_path) as fan:
        assert await fan.books() == [fresh]


async def test_a_success_promised_before_a_restart_is_kept_after_it(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path, late_after_s=0.3) as fan:
        charge = await fan.charged("late_success")
        refunded = await fan.charged(key="2")
        await fan.refund(refunded, 100)
    async with sandbox(books_path=books_path) as fan:
        assert (await fan.now(charge))["status"] == "processing"
        await fan.settled(charge, "succeeded")
        assert (await fan.charge("late_success")).json() == charge
        assert (await fan.refund(refunded, 100)).headers["Idempotency-Replayed"] == "true"
        assert (await fan.now(refunded))["refunded_minor"] == 100


async def test_a_last_line_cut_short_is_dropped_and_any_other_damage_stops_the_start(tmp_path: Path) -> None:
    books_path = tmp_path / "books.jsonl"
    async with sandbox(books_path=books_path) as fan:
        await fan.charged()
    line = books_path.read_bytes()
    books_path.write_bytes(line + line[: len(line) // 2])
    books = ChargeStore(path=books_path, charges_max=10)
    assert len(books) == 1
    books.close()
    assert books_path.read_bytes() == line
    books_path.write_bytes(line[: len(line) // 2] + b"\n" + line)
    with pytest.raises(StoreDamaged, match="line 1"):
        ChargeStore(path=books_path, charges_max=10)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command line on a free port, and its address; whatever is left of it is killed."""
    command = [sys.executable, "-m", "onsale.sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().rpartition(" ")[2].strip()
        finally:
            running.kill()


async def test_a_killed_process_loses_no_charge_and_a_stopped_one_ends_within_a_second(tmp_path: Path) -> None:
    books = ("--books", str(tmp_path / "books.jsonl"))
    with process(*books) as (running, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            fan = Fan(http)
            await asyncio.gather(*(fan.charge(key=str(number)) for number in range(50)))
            http.timeout = httpx.Timeout(0.2)
            with pytest.raises(httpx.ReadTimeout):
                await fan.charge("timeout_after_success", key="hung")
            http.timeout = httpx.Timeout(5)
            before = await fan.books()
            running.kill()
    assert [charge["status"] for charge in before] == ["succeeded"] * 51
    with process(*books) as (running, url):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            fan = Fan(http)
            assert await fan.books() == before
            assert (await fan.charge("timeout_after_success", key="hung")).status_code == 200
            hanging = asyncio.create_task(fan.charge("timeout_after_success", key="hanging"))

            async def booked() -> bool:
                return len(await fan.books()) == 52

            await wait_until(booked)
            began = time.monotonic()
            running.send_signal(signal.SIGTERM)
            await asyncio.to_thread(running.wait, 5)
            assert time.monotonic() - began < 1
            await asyncio.gather(hanging, return_exceptions=True)
            assert running.stderr is not None
            assert running.stderr.read() == ""


def test_a_start_that_cannot_work_says_why_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("{}\n{}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        for arguments in (
            ["--books", str(damaged)],
            ["--webhook-url", "ftp://x"],
            ["--port", "99999"],
            ["--port", used],
        ):
            assert main(["--port", "0", *arguments]) == 2
            why = capsys.readouterr().err
            assert why.startswith("sandbox: ")
            assert why.count("\n") == 1
