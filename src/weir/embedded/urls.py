"""Where the stores are: what the settings say, else what an embedded stack that runs now has written down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from weir.embedded.datadir import DataDir
from weir.errors import Misconfigured
from weir.settings import Settings

_FILE = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """The three stores."""

    redis: str
    postgres: str
    clickhouse: str


def resolve_urls(settings: Settings) -> Urls:
    """The stores to use; one that is neither set nor embedded and running is an error."""
    running = running_urls(settings.embedded.data_dir)
    given = {
        "redis": settings.redis_url,
        "postgres": settings.postgres_url,
        "clickhouse": settings.clickhouse_url,
    }
    found = {name: url or (getattr(running, name) if running else None) for name, url in given.items()}
    for name, url in found.items():
        if url is None:
            raise Misconfigured(
                f"there is no {name}: nothing runs in `{settings.embedded.data_dir}` and "
                f"`WEIR_{name.upper()}_URL` is not set; run `weir up` beside this, or set it"
            )
    return Urls(**{name: str(url) for name, url in found.items()})


def running_urls(data_dir: Path) -> Urls | None:
    """The stores of the stack that runs in `data_dir`, if one does."""
    directory = DataDir(data_dir)
    kept = directory.read_json(_FILE)
    if not directory.in_use() or not {"redis", "postgres", "clickhouse"} <= kept.keys():
        return None
    return Urls(redis=kept["redis"], postgres=kept["postgres"], clickhouse=kept["clickhouse"])


def publish_urls(directory: DataDir, urls: Urls) -> None:
    """Write down where the stores of this directory are, for other commands of the same user."""
    directory.write_json(_FILE, asdict(urls))
