"""Allows one pipeline per checkpoint and per Redis: two would overwrite each other's journal and plans."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import uuid4

import structlog

from weir.errors import BrokerUnavailable, Conflict, Misconfigured
from weir.pipeline.leases import LEASE_S, renew_until
from weir.telemetry.store import StreamStore

_log = structlog.get_logger(__name__)

_LOCAL = "file://"

STREAMS = "streams"
"""The name of the lease on all metric streams."""


@contextmanager
def owned_checkpoint(checkpoint: str) -> Iterator[None]:
    """Hold a local checkpoint's lock while the block runs; a second owner is refused.

    The lock ends with its process, so a dead owner does not keep others out, but a frozen one does. The lock
    file stands beside the checkpoint, because the checkpoint may be removed while a pipeline runs. A remote
    checkpoint has no lock; the lease on the streams protects it.
    """
    path = local_path(checkpoint)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            raise Misconfigured(
                f"a pipeline already runs on `{checkpoint}` ({owner}); stop it first"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        yield


def local_path(checkpoint: str) -> Path | None:
    """The folder of a local checkpoint; None if it is remote."""
    if checkpoint.startswith(_LOCAL):
        return Path(checkpoint.removeprefix(_LOCAL))
    return None if "://" in checkpoint else Path(checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsOwner:
    """The pipeline process that may plan batches of the streams."""

    token: str = field(default_factory=lambda: uuid4().hex)
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    kernel: str = field(default_factory=lambda: _kernel())
    """Says where a process id is valid: the running kernel, and the namespace of process ids in it."""

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> StreamsOwner:
        return cls(**json.loads(text))

    @property
    def name(self) -> str:
        return f"process {self.process} on {self.host}"

    def is_dead(self) -> bool:
        """Whether the process is known to be gone; of one elsewhere only the end of its lease can tell."""
        if self.kernel != _kernel():
            return False
        # A process that replaced itself has the id of its predecessor.
        return self.process == os.getpid() or not _is_alive(self.process)


class StreamsLease:
    """The lease on the streams, which is renewed while this process lives.

    It runs on Redis' clock. While Redis is away the lease can be neither renewed nor taken by another, so the
    pipeline goes on.
    """

    def __init__(
        self, redis_url: str, *, seconds: float = LEASE_S, owner: StreamsOwner | None = None
    ) -> None:
        self.owner = owner or StreamsOwner()
        self.lost_to: StreamsOwner | None = None
        self._on_lost: Callable[[], None] = lambda: None
        self._seconds = seconds
        self._store = StreamStore(redis_url, timeout_s=2)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="streams-lease", daemon=True)

    def take(self) -> None:
        """Take the lease. Wait until the lease of a dead owner ends, and refuse if the owner lives."""
        deadline, left_ms = time.monotonic() + 2 * self._seconds, 0
        while not self._claim():
            held = self._store.read_lease(STREAMS)
            if held is None:
                continue
            other = StreamsOwner.from_text(held.holder)
            if other.is_dead():
                self._store.unclaim(STREAMS, holder=held.holder)
            elif (left_ms and held.left_ms > left_ms) or time.monotonic() > deadline:
                raise Misconfigured(
                    f"{other.name} already owns these streams (a pipeline or `weir migrate`); stop it first"
                )
            elif not left_ms:
                _log.info(
                    "waiting to see whether the owner of the streams lives",
                    owner=other.name, lease_ends_in_s=round(held.left_ms / 1_000, 1),
                )  # fmt: skip
            left_ms = held.left_ms
            time.sleep(0.1)

    def start(self) -> None:
        self._thread.start()

    def when_lost(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` when another process takes the lease; at once if one has taken it already."""
        self._on_lost = on_lost
        if self.lost_to is not None:
            on_lost()

    def require(self) -> None:
        """Raise `Conflict` if another pipeline took the streams over."""
        if self.lost_to is not None:
            raise Conflict(
                f"{self.lost_to.name} took the streams over while this pipeline stood still; run only one"
            )

    def pause_planning(self, seconds: float) -> None:
        """Keep this owner's source from planning another batch for so many seconds."""
        self._store.hold(seconds, holder=self.owner.token, name=pause_name(self.owner))

    def end(self) -> None:
        """Give the lease back."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(BrokerUnavailable):
            self._store.unclaim(STREAMS, holder=self.owner.as_text())
        self._store.close()

    def _claim(self) -> bool:
        return self._store.claim(STREAMS, holder=self.owner.as_text(), seconds=self._seconds)

    def _renew(self) -> None:
        renew_until(self._ended, self._keeps, seconds=self._seconds, name=STREAMS)

    def _keeps(self) -> bool:
        """Prolong the lease, or take it again if it ended while Redis was away."""
        if self._claim() or not self._is_lost():
            return True
        self._on_lost()
        return False

    def _is_lost(self) -> bool:
        held = self._store.read_lease(STREAMS)
        if held is None or held.holder == self.owner.as_text():
            return False
        self.lost_to = StreamsOwner.from_text(held.holder)
        _log.error("another pipeline took the streams over", owner=self.lost_to.name)
        return True


@contextmanager
def owned_streams(redis_url: str) -> Iterator[StreamsLease]:
    """Hold the lease on the streams while the block runs; a second owner is refused."""
    lease = StreamsLease(redis_url)
    lease.take()
    lease.start()
    try:
        yield lease
    finally:
        lease.end()


def pause_name(owner: StreamsOwner) -> str:
    """The name of the mark that keeps an owner's source from planning."""
    return f"pause:{owner.token}"


def _kernel() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A killed process whose parent has not asked for its exit status is still listed, in state Z.
    return status.rpartition(")")[2].split()[0] != "Z"
