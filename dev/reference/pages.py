"""The generated pages of the reference, and the function that writes each."""

from __future__ import annotations

from collections.abc import Callable

from dev.reference.commands import commands_page
from dev.reference.errors import errors_page
from dev.reference.python import python_page
from dev.reference.routes import routes_page
from dev.reference.settings import settings_page

GENERATED: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings_page,
    "reference/cli.md": commands_page,
    "reference/routes.md": routes_page,
    "reference/python.md": python_page,
    "reference/errors.md": errors_page,
}
"""Path below `docs/` -> the function that writes the page as Markdown."""
