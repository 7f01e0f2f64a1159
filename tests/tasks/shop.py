"""An app of tasks for tests; worker processes import it too, and write down what they did."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

from pydantic import BaseModel

from weir import App, Reject, Retry, TaskContext

app = App(name="shop")
reports = App(name="reports", queue="reports")


def note(text: str) -> None:
    """A line that a test can read, from whatever process."""
    if "SHOP_NOTES" in os.environ:
        with Path(os.environ["SHOP_NOTES"]).open("a") as notes:
            notes.write(f"{text}\n")


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    since: datetime


@dataclass(frozen=True)
class Parcel:
    weight: Decimal
    size: Size


class Receipt(BaseModel):
    number: UUID
    total: Decimal
    made_at: datetime


@app.task(queue="parcels", max_attempts=3, backoff=0.05, max_backoff=0.1)
async def ship(parcel: Parcel, to: Address, *tags: str, urgent: bool = False, **notes: int) -> Receipt:
    assert isinstance(parcel, Parcel)
    assert isinstance(to, Address)
    note(f"ship {to.street} {','.join(tags)} {urgent} {notes}")
    return Receipt(number=UUID(int=7), total=parcel.weight * 2, made_at=to.since)


@app.task(queue="parcels")
def label(text: str, copies: int = 1) -> str:
    note(f"label {text} {copies}")
    return text * copies


@app.task(queue="parcels")
def forget(text: str) -> None:
    note(f"forget {text}")


@app.task(
    queue="flaky", max_attempts=int(os.environ.get("SHOP_ATTEMPTS", "3")), backoff=0.05, max_backoff=0.1
)
def fail_twice(name: str, context: TaskContext) -> int:
    note(f"fail_twice {name} {context.attempt}")
    label.push(name, copies=2)
    if context.attempt < 3:
        raise ValueError(f"not yet {name}")
    return context.attempt


@app.task(queue="flaky")
def refuse(name: str) -> None:
    raise Reject(f"never {name}")


@app.task(queue="flaky")
def come_back(context: TaskContext) -> int:
    if context.attempt == 1:
        raise Retry("later", delay=30)
    return context.attempt


@app.task(queue="slow", timeout=60)
async def steps(count: int, context: TaskContext) -> int:
    for done in range(count):
        context.progress({"done": done + 1, "of": count})
        context.log.info("step %s", done)
        await label.apush(f"step {done}")
    return count


@app.task(queue="doomed")
def stop_halfway(file: str, context: TaskContext) -> str:
    """Tells that it began, waits for a file, and ends as that says."""
    context.progress({"half": 1})
    while not Path(file).exists():
        time.sleep(0.01)
    context.progress({"half": 2})
    if Path(file).read_text() == "fail":
        raise ValueError("stopped")
    return "whole"


@app.task(queue="members", max_attempts=10, backoff=0.05, max_backoff=0.2, lease=2)
def member(number: int, context: TaskContext) -> int:
    """Fails at its first attempts, some members more often than others."""
    if context.attempt <= number % 4:
        raise ValueError(f"member {number} fails")
    time.sleep(0.002)
    note(f"member {number}")
    return number


@app.task(queue="doomed", max_attempts=1)
def doomed(file: str) -> None:
    if not Path(file).exists():
        raise ValueError("not yet")


@app.task(queue="callbacks")
def all_done(name: str) -> None:
    note(f"all_done {name}")


@app.task(queue="callbacks")
def some_died(name: str) -> None:
    note(f"some_died {name}")


@app.task(queue="hung", max_attempts=2, timeout=1, backoff=0.05, process=True)
def hang(seconds: float) -> int:
    note(f"hang {os.getpid()}")
    time.sleep(seconds)
    note("hang ended")
    return os.getpid()


@reports.every("0 3 * * *", timezone="Europe/Berlin", overlap="skip")
@reports.task
def nightly(kind: str = "sales") -> str:
    note(f"nightly {kind} {datetime.now(UTC).year}")
    return kind


@reports.every("30s", name="often", arguments={"kind": "short"})
@reports.task(name="report")
def often(kind: str) -> str:
    return kind
