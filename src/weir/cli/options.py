"""Options that several commands share, and settings built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weir.settings import EmbeddedSettings, Settings, load_settings

DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Where the embedded servers keep their data.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings_with(data_dir: Path | None = None) -> Settings:
    """The settings of the environment, with a data directory given on the command line."""
    settings = load_settings()
    if data_dir is None:
        return settings
    embedded = EmbeddedSettings(**{**settings.embedded.model_dump(), "data_dir": data_dir})
    return settings.model_copy(update={"embedded": embedded})
