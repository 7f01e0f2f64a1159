"""Finds the app that `module:app` names."""

from __future__ import annotations

from weir.errors import Misconfigured
from weir.tasks.app import App
from weir.workers.commands import load_target


def load_app(target: str) -> App:
    """The app of `module:app`."""
    found = load_target(target)
    if not isinstance(found, App):
        raise Misconfigured(f"`{target}` is not an app of tasks; create one with `App()`")
    return found
