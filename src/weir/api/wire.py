"""What the HTTP server and the application tell each other about a request, as members of its scope."""

from __future__ import annotations

ENDED_BY = "weir.ended_by"
"""The error with which the server ended a request that did not become complete. It has been answered."""
