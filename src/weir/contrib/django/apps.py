"""The app that brings `manage.py weir_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class WeirConfig(AppConfig):  # type: ignore[misc]
    """Registers the management commands under the label `weir`."""

    name = "weir.contrib.django"
    label = "weir"
    verbose_name = "Weir"
