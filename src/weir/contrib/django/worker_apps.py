"""The apps for `weir worker`: `worker_apps:default` of this package is the app of `TASKS["default"]`."""

from __future__ import annotations

import django
from django.apps import apps

from weir.contrib.django.app import DjangoApp
from weir.errors import Misconfigured


def __getattr__(alias: str) -> DjangoApp:
    """The app of a backend, with Django set up for it."""
    if alias.startswith("__"):
        raise AttributeError(alias)
    if not apps.ready:
        django.setup()
    return app_of_alias(alias)


def app_of_alias(alias: str) -> DjangoApp:
    """The app of the backend with that alias; Misconfigured if it is not a backend of Weir."""
    # Imported here, because importing tasks of Django needs its settings.
    from weir.contrib.django.backend import WeirBackend
    from weir.contrib.django.interface import task_backends

    if alias not in task_backends:
        raise Misconfigured(f"`TASKS` has no backend `{alias}`; it has {', '.join(task_backends)}")
    backend = task_backends[alias]
    if not isinstance(backend, WeirBackend):
        raise Misconfigured(
            f"the backend `{alias}` of `TASKS` is {type(backend).__name__}; a worker of Weir needs "
            "`WeirBackend`"
        )
    if not backend.queues:
        raise Misconfigured(f"the backend `{alias}` of `TASKS` has no `QUEUES`; a worker needs their names")
    return backend.app
