"""The servers and data of `weir bench neighbour`: a process of the API, a heavy tenant and a calm one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from benches.answering import answering
from benches.children import child
from benches.dlq_rows import Sizes, fill
from benches.figures import say
from benches.lives_rows import ENVIRONMENT as HEAVY
from benches.lives_rows import fill_lives
from benches.servers import bench_stack
from benches.worst_expressions import payloads
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import NewToken, Tokens
from weir.embedded.child import Child
from weir.embedded.ports import free_port
from weir.model.durations import DAY_MS
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef
from weir.model.open_files import raise_file_limit
from weir.settings import StoreUrls
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.stores.migrations import migrate_stores
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.tables import LIVES, LOG

CALM = EnvironmentRef(organization="calm", project="shop", environment="prod")
CALM_QUEUE = "orders"
DEAD_LARGE, PURGED_LARGE = "dead-large", "purged-large"
WORST_LETTERS = 20
"""Letters with each of the payloads that the worst expressions are for."""


def worst_queue(payload: str) -> str:
    """The queue of the letters with a payload of this name."""
    return f"worst-{payload}"


_MANY_ATTEMPTS = DeliveryPolicy(max_attempts=1_000_000)
_ONCE = DeliveryPolicy(max_attempts=1)
QUEUES = (
    QueueSpec(name="large", delivery=_MANY_ATTEMPTS),
    QueueSpec(name="small", delivery=_MANY_ATTEMPTS),
    QueueSpec(name="logged", log_ms=30 * DAY_MS),
    QueueSpec(name="redrive-me"),
    QueueSpec(name="purge-me"),
    QueueSpec(name="dying", delivery=_ONCE),
    QueueSpec(name="empty"),
    QueueSpec(name=DEAD_LARGE, delivery=_ONCE),
    QueueSpec(name=PURGED_LARGE, delivery=_ONCE),
    *(QueueSpec(name=worst_queue(name), delivery=_ONCE) for name in payloads()),
)
_LARGE = {"l": list(range(999)), "s": "a" * 40_000, "filler": "x" * 955_000}
"""A message of 1,000 kB that gives the worst expressions something to work on."""
_SQL = load_warehouse_queries("benches", "neighbour.sql")
_MOVED_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything there is."""

    seconds: float
    """How long each deed lasts."""
    large: int
    small: int
    logged: int
    deaths: int
    polls: int
    planned: int


FULL = Size(
    seconds=20, large=1_000, small=1_000_000, logged=1_000, deaths=200_000, polls=10_000, planned=5_000
)
QUICK = Size(seconds=2, large=40, small=20_000, logged=40, deaths=2_000, polls=300, planned=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The API, its stores, and the tokens of both tenants."""

    size: Size
    port: int
    api: Child
    urls: StoreUrls
    broker: RedisBroker
    heavy: str
    calm: str

    def rss_mib(self) -> dict[str, float]:
        """The memory of the greatest process of each name: the API's with those that it started."""
        found: dict[str, float] = {}
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                name = "api" if self._is_of_api(one) else one.name()
                found[name] = max(found.get(name, 0.0), one.memory_info().rss / 2**20)
        return found

    def _is_of_api(self, process: psutil.Process) -> bool:
        return process.pid == self.api.pid or self.api.pid in [one.pid for one in process.parents()]


@asynccontextmanager
async def open_house(size: Size) -> AsyncIterator[House]:
    """Start everything and fill it."""
    raise_file_limit()
    with _folder() as folder:
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            broker = RedisBroker(RedisConnection(url=stack.urls.redis))
            async with Database(stack.urls.postgres, max_size=4, timeout_s=60) as database:
                heavy, calm = await _make_tenants(database)
                await _fill_letters(database, size)
            await asyncio.to_thread(_fill_warehouse, stack.urls.clickhouse, size)
            port = free_port()
            command = ("-m", "weir.cli", "serve", "--data-dir", str(folder), "--port", str(port))
            settings = {"WEIR_API__LOG_LEVEL": "ERROR", "WEIR_WORKER__ALLOWED_SUBNETS": '["127.0.0.0/8"]'}
            async with child(*command, folder=folder, **settings) as api:
                await answering(port)
                house = House(
                    size=size, port=port, api=api, urls=stack.urls, broker=broker, heavy=heavy, calm=calm
                )
                await _fill_queues(broker, size)
                yield house
            await broker.aclose()


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-neighbour-") as name:
        # PostgreSQL may run as another account, which must be able to enter the folder.
        Path(name).chmod(0o711)
        yield Path(name)


async def _make_tenants(database: Database) -> tuple[str, str]:
    definitions = QueueDefinitions(database)
    for spec in QUEUES:
        await definitions.define(HEAVY.queue(spec.name), spec)
    await definitions.define(CALM.queue(CALM_QUEUE), QueueSpec(name=CALM_QUEUE))
    return await _token(database, HEAVY), await _token(database, CALM)


async def _token(database: Database, scope: EnvironmentRef) -> str:
    new = NewToken(
        name="bench",
        role=Role.ADMIN,
        organization=scope.organization,
        project=scope.project,
        environment=scope.environment,
    )
    return (await Tokens(database).create(new))[0]


async def _fill_letters(database: Database, size: Size) -> None:
    quarter = size.small // 4
    await fill(database, HEAVY, Sizes(rows=size.small, purge=quarter, redrive=quarter))


def _fill_warehouse(url: str, size: Size) -> None:
    with closing(ClickHouseConnection(url, timeout_s=300)) as connection:
        fill_lives(connection, size.small)
        names = connection.rows(_SQL["columns_of_lives"].text, {"table": LIVES})
        columns = ", ".join(f"`{row['name']}`" for row in names if row["name"] != "queue")
        text = _SQL["fill_log"].text.replace("$COLUMNS", columns)
        for start in range(0, size.logged, 50):
            connection.command(text, {"log": LOG, "lives": LIVES, "start": start, "count": 50})


async def _fill_queues(broker: RedisBroker, size: Size) -> None:
    say(f"filling the queues: {size.large} large messages, {size.small} small ones")
    large = orjson.dumps(_LARGE)
    for queue in ("large", DEAD_LARGE, PURGED_LARGE):
        for _ in range(0, size.large, 10):
            messages = [NewMessage(payload=large) for _ in range(10)]
            await broker.enqueue(HEAVY.queue(queue), messages)
            if queue != "large":
                await kill(broker, queue, 10)
    for name, payload in payloads().items():
        messages = [NewMessage(payload=payload) for _ in range(WORST_LETTERS)]
        await broker.enqueue(HEAVY.queue(worst_queue(name)), messages)
        await kill(broker, worst_queue(name), WORST_LETTERS)
    for _ in range(0, size.small, 1_000):
        await broker.enqueue(HEAVY.queue("small"), [NewMessage(payload=b'{"n":1}') for _ in range(1_000)])


async def kill(broker: RedisBroker, queue: str, count: int) -> int:
    """Let the next messages of a queue die; returns how many there were."""
    taken = await broker.dequeue(HEAVY.queue(queue), consumer="bench", limit=count)
    await broker.nack([Failure(lease=one.lease, error="connect to 10.0.0.1 refused") for one in taken])
    return len(taken)
