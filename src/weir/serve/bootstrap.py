"""The first tokens of an installation. All later tokens are created with one of these."""

from __future__ import annotations

import os
from pathlib import Path

from weir.control.authentication import CachedAuthenticator
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.errors import Unauthenticated
from weir.model.names import EnvironmentRef
from weir.serve.address import ADMIN_FILE, OPERATOR_FILE, read_token

DEFAULT = EnvironmentRef(organization="default", project="default", environment="default")
"""The environment that commands and tokens are about unless they name another."""

ADMIN = NewToken(
    name="bootstrap",
    role=Role.ADMIN,
    organization=DEFAULT.organization,
    project=DEFAULT.project,
    environment=DEFAULT.environment,
)
OPERATOR = NewToken(name="bootstrap", role=Role.OPERATOR, organization=None)


async def bootstrap_tokens(tokens: Tokens, folder: Path) -> None:
    """Keep the first tokens in `folder`: an operator's, and an admin's of the default environment."""
    await keep_token(tokens, folder / ADMIN_FILE, ADMIN)
    await keep_token(tokens, folder / OPERATOR_FILE, OPERATOR)


async def keep_token(tokens: Tokens, path: Path, new: NewToken) -> str:
    """Return the token in the file `path`; create it if there is none, or if it is no longer valid."""
    kept = read_token(path)
    try:
        await CachedAuthenticator(tokens).authenticate(kept)
    except Unauthenticated:
        text, _ = await tokens.create(new)
        _write_private(path, text)
        return text
    return kept


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
