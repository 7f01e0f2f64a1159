"""Views that enqueue a task and show a result."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django_tasks import TaskResult, default_task_backend
from django_tasks.exceptions import TaskResultDoesNotExist

import tasks


def _shown(result: TaskResult) -> JsonResponse:
    value = result.return_value if result.is_finished else None
    return JsonResponse({"result_id": result.id, "result": value, "status": result.status})


def meaning(request: HttpRequest) -> JsonResponse:
    queue = request.GET.get("queue", "default")
    return _shown(tasks.meaning_of_life.using(queue_name=queue).enqueue())


async def meaning_async(request: HttpRequest) -> JsonResponse:
    queue = request.GET.get("queue", "default")
    return _shown(await tasks.meaning_of_life.using(queue_name=queue).aenqueue())


def result(request: HttpRequest, result_id: str) -> JsonResponse:
    try:
        return _shown(default_task_backend.get_result(result_id))
    except TaskResultDoesNotExist:
        return JsonResponse({}, status=404)


urlpatterns = [
    path("meaning-of-life/", meaning, name="meaning-of-life"),
    path("meaning-of-life-async/", meaning_async, name="meaning-of-life-async"),
    path("result/<str:result_id>", result, name="result"),
]
