"""The first token: a fresh installation has to let somebody in."""

from __future__ import annotations

import os
from pathlib import Path

from weir.control.authentication import CachedAuthenticator
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.errors import Unauthenticated
from weir.model.names import EnvironmentRef

FILE = "admin.token"
DEFAULT = EnvironmentRef(organization="default", project="default", environment="default")


async def bootstrap_token(tokens: Tokens, path: Path) -> str:
    """The admin token of the default environment that is kept in `path`; a new one if it does not hold."""
    kept = _read(path)
    try:
        await CachedAuthenticator(tokens).authenticate(kept)
    except Unauthenticated:
        return await _fresh(tokens, path)
    return kept


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


async def _fresh(tokens: Tokens, path: Path) -> str:
    new = NewToken(
        name="bootstrap",
        role=Role.ADMIN,
        organization=DEFAULT.organization,
        project=DEFAULT.project,
        environment=DEFAULT.environment,
    )
    text, _ = await tokens.create(new)
    _write_private(path, text)
    return text


def _write_private(path: Path, text: str) -> None:
    """Readable by its owner alone from the first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
