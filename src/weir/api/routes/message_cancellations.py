"""Cancel all messages of a queue that match, as a bulk action."""

from __future__ import annotations

from fastapi import APIRouter, Response, status

from weir.api.auth import App, Writer
from weir.api.routes.deadletters import dead_letters_of, task_location
from weir.api.schemas.dead_letters import TaskView, task_view
from weir.api.schemas.message_touches import CancellationBody

router = APIRouter(tags=["messages"])


@router.post(
    "/api/v1/queues/{queue}/messages/cancellations",
    operation_id="cancel_matching_messages",
    status_code=status.HTTP_202_ACCEPTED,
)
async def cancel_matching_messages(
    queue: str, body: CancellationBody, access: Writer, services: App, response: Response
) -> TaskView:
    """Cancel matching messages of a queue, as a bulk action; `/api/v1/dlq/tasks/{task_id}` shows it."""
    actions = dead_letters_of(services).bulk_actions
    action = await actions.create_cancellation(access.environment, body.cancellation(queue), by=access.actor)
    response.headers["location"] = task_location(action)
    return task_view(action)
