"""How commands reach the API of a data directory: the address and the tokens that are kept there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.embedded.datadir import DataDir

_FILE = "api.json"
ADMIN_FILE = "admin.token"
OPERATOR_FILE = "operator.token"


@contextmanager
def published_address(data_dir: Path | None, url: str) -> Iterator[None]:
    """Let commands find the API at `url` while the block runs; without a directory, do nothing."""
    if data_dir is None:
        yield
        return
    DataDir(data_dir).write_json(_FILE, {"url": url})
    try:
        yield
    finally:
        (data_dir / _FILE).unlink(missing_ok=True)


def read_token(path: Path) -> str:
    """The token in a file; empty if there is none, or if this user may not read it."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def find_address(data_dir: Path) -> str | None:
    """The URL of the API that serves this directory, if one does."""
    url = DataDir(data_dir).read_json(_FILE).get("url")
    return url if isinstance(url, str) else None
