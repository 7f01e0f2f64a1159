"""Finds the keys that seal secrets: in the file that the settings name, or in the embedded data folder."""

from __future__ import annotations

from weir.control.sealing import SealingKeys, read_keys
from weir.embedded.datadir import SEALING_KEYS
from weir.settings import Settings


def sealing_keys(settings: Settings) -> SealingKeys | None:
    """The keys; None if the stores are servers of your own and no file is named."""
    path = settings.secrets.key_file
    if path is None:
        path = settings.embedded.data_dir / SEALING_KEYS
        if settings.postgres_url is not None or not path.exists():
            return None
    return read_keys(path)
