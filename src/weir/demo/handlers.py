"""The handlers of the demo's workers, as slow and as unreliable as the scenario says."""

from __future__ import annotations

import asyncio
import os

from weir.demo.scenario import INCIDENT_FAILURES, TENANTS, Incidents, QueueStory
from weir.model.clock import SystemClock
from weir.model.shards import text_key
from weir.worker import Commands, Context

app = Commands()

_STORIES = {(tenant.environment, story.name): story for tenant in TENANTS for story in tenant.queues}
_CLOCK = SystemClock()
FIRST_INCIDENT = "DEMO_FIRST_INCIDENT_MS"
_INCIDENTS = Incidents(first_ms=int(os.environ.get(FIRST_INCIDENT, "0")))


def _story(context: Context) -> QueueStory:
    return _STORIES[context.environment, context.queue or ""]


def _dice(context: Context, *salt: str) -> float:
    """A number from 0 to 1 that depends on the message alone, so a message that fails keeps failing."""
    return text_key(context.message_id, *salt) % 10_000 / 10_000


async def _work(context: Context) -> None:
    """Take as long as the scenario says, and fail as often as it says."""
    story = _story(context)
    handler_ms = _INCIDENTS.handler_ms(story, _CLOCK.now_ms())
    await asyncio.sleep(handler_ms * (0.5 + _dice(context, "pace")) / 1_000)
    # The attempt counts too, so that a retry may succeed.
    if _dice(context, "fails", str(context.attempt)) < story.failure_share:
        raise ConnectionError(
            f"upstream 10.0.3.{context.attempt} closed the connection after 1{context.attempt}ms"
        )


@app.command("Email.Send")
async def send_email(to: str, template: str, context: Context) -> None:
    await _work(context)


@app.command("Order.Fulfil")
async def fulfil_order(order: int, customer: str, context: Context) -> None:
    await _work(context)


@app.command("Ledger.Append")
async def append_to_ledger(entry: int, context: Context) -> None:
    await _work(context)


@app.command("Image.Shrink")
async def shrink_image(image: int, context: Context) -> None:
    await _work(context)


@app.command("Image.Check")
async def check_image(image: int, context: Context) -> None:
    await _work(context)


@app.command("Payment.Charge")
async def charge_payment(payment: int, cents: int, context: Context) -> None:
    await _work(context)
    if _INCIDENTS.hit(_story(context), _CLOCK.now_ms()) and _dice(context, "declined") < INCIDENT_FAILURES:
        raise TimeoutError(f"payment {payment}: the bank did not answer within 500 ms")


@app.command("Import.Row")
async def import_row(row: int, source: str, context: Context) -> None:
    await _work(context)
    if _dice(context, "poison") < _story(context).poison_share:
        raise _complaint(row, source, kind=_dice(context, "kind"))


def _complaint(row: int, source: str, *, kind: float) -> Exception:
    """The error of a bad row. Most have the same one, so that the groups of dead letters differ in size."""
    if kind < 0.6:
        return ValueError(f"row {row} of {source}: column `price` is not a number: 'N/A'")
    if kind < 0.85:
        return KeyError(f"row {row} of {source} has no column `sku`")
    return UnicodeError(f"row {row} of {source} is not UTF-8 at byte {row * 7}")


@app.command("Export.Write")
async def write_export(report: int, context: Context) -> None:
    await _work(context)


@app.command("Incident.Create")
async def create_incident(title: str, urgent: bool, context: Context) -> dict[str, str]:
    await _work(context)
    return {"incident": title}


@app.command("Invoice.Issue")
async def issue_invoice(invoice: int, customer: str, context: Context) -> None:
    await _work(context)


@app.command("Invoice.Remind")
async def remind_of_invoice(invoice: int, context: Context) -> None:
    await _work(context)
