"""A copy of the data folder that an old release left behind; `fixtures/make_data_folder.py` made it."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.embedded.unix_accounts import unprivileged_account

_NAME = "data-folder-1ddfe8c"
_FIXTURES = Path(__file__).parents[1] / "fixtures"

OLD_SETTINGS = {
    "WEIR_WAREHOUSE__KEEP_5S_DAYS": "20000",
    "WEIR_WAREHOUSE__KEEP_1M_DAYS": "20000",
    "WEIR_WAREHOUSE__KEEP_1H_DAYS": "20000",
    "WEIR_PIPELINE__KEEP_ARCHIVE_DAYS": "0",
    "WEIR_DEAD_LETTERS__KEEP_REPLAYED_DAYS": "20000",
}
"""Open the folder with these settings. With the defaults its data is too old to be kept."""


@dataclass(frozen=True, kw_only=True)
class OldFolder:
    """A private copy. `told` holds the answers of the release that made the folder."""

    path: Path
    told: dict[str, Any] = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process over this folder needs."""
        return {**os.environ, **OLD_SETTINGS, **self.told["secrets"]}


def unpack_old_folder(target: Path) -> OldFolder:
    """Unpack a copy into the folder `target`; PostgreSQL's account has to pass through it."""
    with tarfile.open(_FIXTURES / f"{_NAME}.tar.xz") as packed:
        packed.extractall(target, filter="tar")
    path = target / "data"
    _give_to_postgres(path / "postgres")
    return OldFolder(path=path, told=json.loads((_FIXTURES / f"{_NAME}.json").read_text()))


def _give_to_postgres(folder: Path) -> None:
    """Give everything there to the account that PostgreSQL runs as."""
    account = unprivileged_account(folder)
    if account is None:
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
