"""The file in which a running embedded stack says where its stores are, for commands of the same user."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from weir.embedded.datadir import DataDir
from weir.settings import StoreUrls

_FILE = "run.json"


def running_urls(data_dir: Path) -> StoreUrls | None:
    """The stores of the stack that runs in `data_dir`; None if none runs."""
    directory = DataDir(data_dir)
    kept = directory.read_json(_FILE)
    if not directory.in_use() or not {"redis", "postgres", "clickhouse"} <= kept.keys():
        return None
    return StoreUrls(redis=kept["redis"], postgres=kept["postgres"], clickhouse=kept["clickhouse"])


def publish_urls(directory: DataDir, urls: StoreUrls) -> None:
    """Write the URLs of this directory's stores."""
    directory.write_json(_FILE, asdict(urls))
