"""Processes tell systemd that they are ready, that they stop, and that they are alive."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.notify_socket import notify_socket
from support.processes import frozen
from weir.cli.running import run_until_done
from weir.cli.service_manager import ping_period_s, pinging, tell_ready


@pytest.fixture
def short_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Addresses of unix sockets have at most 107 bytes."""
    return tmp_path_factory.mktemp("n")


def test_nothing_is_sent_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    tell_ready()
    assert ping_period_s() is None


@pytest.mark.parametrize("address", ["/nowhere/at/all", "relative"])
def test_a_service_manager_that_is_gone_is_no_trouble(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    tell_ready()


def test_an_abstract_address_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0weir-test-{os.getpid()}")
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@weir-test-{os.getpid()}")
        tell_ready()
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize(("usec", "pid"), [("0", None), ("soon", None), ("3000000", "1")])
def test_a_watchdog_that_is_off_or_of_another_process_gets_no_pings(
    monkeypatch: pytest.MonkeyPatch, usec: str, pid: str | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    assert ping_period_s() is None


def test_the_event_loop_pings_while_work_runs(monkeypatch: pytest.MonkeyPatch, short_folder: Path) -> None:
    with notify_socket(short_folder) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
        monkeypatch.setenv("WATCHDOG_USEC", "30000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

        async def work() -> None:
            for _ in range(3):
                manager.forget()
                await asyncio.to_thread(manager.wait_for, "WATCHDOG=1")

        run_until_done(work())


def test_a_check_that_says_no_or_hangs_stops_the_pings(
    monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    answers, asked, hung = iter([True, False]), threading.Event(), threading.Event()

    def is_alive() -> bool:
        try:
            return next(answers)
        except StopIteration:
            asked.set()
            return hung.wait(20) and False

    with notify_socket(short_folder) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
        monkeypatch.setenv("WATCHDOG_USEC", "30000")
        with pinging(is_alive):
            assert asked.wait(20)
            manager.wait_for("WATCHDOG=1")
            manager.forget()
            hung.set()
        with pytest.raises(AssertionError, match="was not sent"):
            manager.wait_for("WATCHDOG=1", within_s=0.2)


@pytest.mark.parametrize("role", [("serve", "--port", "0"), ("worker",)], ids=lambda words: words[0])
def test_a_role_is_ready_alive_and_stopping(
    role: tuple[str, ...], short_folder: Path, redis_url: str, database_url: str, warehouse_url: str
) -> None:
    with notify_socket(short_folder) as manager:
        environment = {
            **os.environ,
            "WEIR_REDIS_URL": redis_url,
            "WEIR_POSTGRES_URL": database_url,
            "WEIR_CLICKHOUSE_URL": warehouse_url,
            "NOTIFY_SOCKET": str(manager.path),
            "WATCHDOG_USEC": "1500000",
        }
        command = [sys.executable, "-m", "weir.cli", *role]
        with subprocess.Popen(
            command, env=environment, cwd=short_folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                manager.wait_for("READY=1")
                manager.wait_for("WATCHDOG=1")
                with frozen(process.pid):
                    manager.forget()
                    with pytest.raises(AssertionError, match="was not sent"):
                        manager.wait_for("WATCHDOG=1", within_s=1.0)
                manager.wait_for("WATCHDOG=1")
                process.send_signal(signal.SIGTERM)
                manager.wait_for("STOPPING=1")
                assert process.wait(timeout=40) == 0
            finally:
                process.kill()
