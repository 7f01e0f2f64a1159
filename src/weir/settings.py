"""Settings: one validated value, built at the edge. Only this module reads the environment.

Every setting is an environment variable: `WEIR_` and its name, sections joined by two underscores
(`WEIR_EMBEDDED__REDIS_PORT`). A room's section is a small class here; rooms themselves take plain values.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from weir.admission.capacity import INITIAL_LIMIT, MAX_LIMIT, MIN_LIMIT, TARGET_LATENCY_MS
from weir.admission.decide import DEFAULT_THRESHOLD
from weir.api.limits import Limits
from weir.errors import Misconfigured
from weir.model.masking import MASK, masked_attempt, masked_url
from weir.warehouse.tables import TierRetention

PREFIX = "WEIR_"
_DELIMITER = "__"
_OF_THE_LAUNCHER = frozenset({"WEIR_VENV", "WEIR_PYTHON"})
"""Variables that the script `./weir` reads; they are not settings."""
_RENAMED = {"WEIR_PIPELINE__MAX_LANES": "WEIR_PIPELINE__MAX_READ_TASKS"}
"""Old name of a setting -> its new name, which the error about the old one gives."""
_LIMITS = Limits()
_RETENTION = TierRetention()


def _url_of(*schemes: str) -> AfterValidator:
    expected = " or ".join(f"{scheme}://host:port/…" for scheme in schemes)

    def check(value: str) -> str:
        try:
            parts = urlsplit(value)
            well_formed = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            well_formed = False
        if not well_formed:
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def _check_subnet(value: str) -> str:
    try:
        ip_network(value)
    except ValueError:
        raise ValueError("expected an address or a subnet such as 10.0.0.0/8") from None
    return value


def _check_trace_url(value: str) -> str:
    if not value.startswith(("http://", "https://")) or "{trace_id}" not in value:
        raise ValueError("expected https://host/…{trace_id}…")
    return value


RedisUrl = Annotated[str, _url_of("redis", "rediss", "redis+cluster", "rediss+cluster")]
PostgresUrl = Annotated[str, _url_of("postgresql", "postgres")]
ApiUrl = Annotated[str, _url_of("http", "https")]
ClickHouseUrl = Annotated[str, _url_of("http", "https")]
Subnet = Annotated[str, AfterValidator(_check_subnet)]
TraceUrl = Annotated[str, AfterValidator(_check_trace_url)]
Port = Annotated[int, Field(ge=0, le=65_535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUrls:
    """Where the three stores are: at the URLs that are set, or in the embedded servers."""

    redis: str
    postgres: str
    clickhouse: str


class SettingsSection(BaseModel):
    """A room's settings: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmbeddedSettings(SettingsSection):
    """The servers that Weir starts itself when no URL says otherwise."""

    data_dir: Path = Field(default=Path(".weir"), description="folder in which the servers keep their data")
    redis_server: Path | None = Field(
        default=None,
        description="path of a Redis or Valkey program; unset: the Valkey of the extra `embedded`",
    )
    redis_port: Port = Field(default=0, description="port of the embedded Redis; 0 picks a free one")
    postgres_port: Port = Field(default=0, description="port of the embedded PostgreSQL; 0 picks a free one")
    clickhouse_port: Port = Field(
        default=0, description="port of the embedded ClickHouse; 0 picks a free one"
    )


class ApiSettings(SettingsSection):
    """Where the API listens, and how much it accepts."""

    host: str = Field(default="127.0.0.1", description="address that the API listens on")
    port: Port = Field(default=8420, description="port of the API; 0 picks a free one")
    max_body_bytes: Annotated[int, Field(ge=1_024, le=67_108_864)] = Field(
        default=_LIMITS.max_body_bytes,
        description="largest body of a request; a larger one is refused with 413",
    )
    max_header_bytes: Annotated[int, Field(ge=8_192, le=1_048_576)] = Field(
        default=_LIMITS.max_header_bytes,
        description="bytes of a request's headers, and again of its trailers and chunk extensions; more: 431",
    )
    max_concurrency: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_concurrency,
        description="requests that a process answers at once; more are refused with 429",
    )
    max_polls: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_polls,
        description="long polls that a process answers at once; more are refused with 503",
    )
    max_streams: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_streams,
        description="streams of events that a process serves at once; more are refused with 429",
    )
    max_streams_per_token: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_streams_per_token,
        description="streams that the tokens of one scope have at once; more are refused with 429",
    )
    header_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=_LIMITS.header_timeout_s,
        description="seconds in which headers must arrive; slower ones are refused with 408",
    )
    body_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=_LIMITS.body_timeout_s,
        description="seconds in which a body must arrive; a slower one is refused with 408",
    )
    send_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=_LIMITS.send_timeout_s,
        description="seconds after which a client that reads nothing is cut off",
    )
    max_unfinished: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_unfinished,
        description="requests that may be arriving at once; of more, the oldest are refused with 429",
    )
    max_unfinished_per_client: Annotated[int, Field(ge=1)] = Field(
        default=_LIMITS.max_unfinished_per_client,
        description="the same per client; raise it behind a proxy that does not buffer requests",
    )
    max_unfinished_bytes: Annotated[int, Field(ge=1_048_576)] = Field(
        default=_LIMITS.max_unfinished_bytes,
        description="bytes of requests that are still arriving; of more, the oldest are refused with 429",
    )
    token_fresh_s: Annotated[float, Field(ge=0)] = Field(
        default=15.0, description="seconds within which a revoked token ends everywhere"
    )
    token_stale_s: Annotated[float, Field(ge=0)] = Field(
        default=600.0, description="seconds for which known tokens stay valid while PostgreSQL is away"
    )
    postgres_connections: Annotated[int, Field(ge=2)] = Field(
        default=10, description="connections to PostgreSQL that the API may open"
    )
    min_free_disk_bytes: Annotated[int, Field(ge=0)] = Field(
        default=134_217_728,
        description="free bytes on the disk of a Redis on this machine, below which messages are refused",
    )
    rewrite_disk_bytes: Annotated[int, Field(ge=0)] = Field(
        default=67_108_864,
        description="free bytes on that disk, below which the append-only file is rewritten",
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="PEM file of the certificate and its chain; with `tls_key`, the API speaks TLS",
    )
    tls_key: Path | None = Field(default=None, description="PEM file of the certificate's key")
    trusted_proxies: tuple[Subnet, ...] = Field(
        default=(),
        description="addresses or subnets of proxies, as a JSON list; their X-Forwarded headers are believed",
    )
    metrics_token: SecretStr | None = Field(
        default=None, description="token with which /metrics shows every tenant"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="lowest severity that is logged"
    )


class PipelineSettings(SettingsSection):
    """How Spark moves events from the streams to the warehouse."""

    master: str | None = Field(
        default=None,
        description="Spark master; unset: this machine, or the master that runs the submitted job",
    )
    memory: str = Field(default="1g", description="heap of the driver and of each executor")
    bundle: str | None = Field(
        default=None,
        description="path or URL of the archive for workers without Weir; `weir pipeline bundle` makes it",
    )
    checkpoint: str | None = Field(
        default=None,
        description="folder or URL of the pipeline's checkpoint; unset: below the data directory",
    )
    archive: str | None = Field(
        default=None, description="folder or URL of the archive of events; unset: below the data directory"
    )
    keep_archive_days: Annotated[int, Field(ge=0)] = Field(
        default=38,
        description="days that the archive keeps events; 38 is a week more than the minute tier; 0 keeps all",
    )
    trigger_ms: Annotated[int, Field(ge=50, le=60_000)] = Field(
        default=500, description="least milliseconds between the starts of two batches"
    )
    max_events: Annotated[int, Field(ge=1_000)] = Field(
        default=400_000, description="about how many events one batch reads"
    )
    max_read_tasks: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="most Spark tasks that read one batch; 0: two per shard, but not more than one per core",
    )
    audit_period_s: Annotated[float, Field(ge=0)] = Field(
        default=600.0, description="seconds between two audits by a running pipeline; 0: never"
    )
    read_task_events: Annotated[int | None, Field(ge=100)] = Field(
        default=None, description="events that are worth a read task; unset: the number measured on two cores"
    )
    metrics_port: Port | None = Field(
        default=None, description="port on which the pipeline answers /metrics; unset: it does not"
    )
    metrics: str | None = Field(
        default=None, description="further metrics as `module:definitions`, several separated by commas"
    )


class WarehouseSettings(SettingsSection):
    """How long the tiers keep their rows: charts choose their tier by it, and the pipeline deletes by it."""

    keep_5s_days: Annotated[int, Field(ge=1)] = Field(
        default=_RETENTION.fine_days, description="days for which the tier of 5 s keeps its rows"
    )
    keep_1m_days: Annotated[int, Field(ge=1)] = Field(
        default=_RETENTION.minute_days, description="days for which the tier of 1 minute keeps its rows"
    )
    keep_1h_days: Annotated[int, Field(ge=1)] = Field(
        default=_RETENTION.hour_days, description="days for which the tier of 1 hour keeps its rows"
    )

    @property
    def retention(self) -> TierRetention:
        return TierRetention(
            fine_days=self.keep_5s_days, minute_days=self.keep_1m_days, hour_days=self.keep_1h_days
        )


class LoadSettings(SettingsSection):
    """How requests are admitted when more arrive than can run at once."""

    admission: bool = Field(
        default=True, description="false executes every request at once, however busy the broker is"
    )
    push_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        default=DEFAULT_THRESHOLD.utilization,
        description="pushes are queued as operations while more than this share of the limit is in use",
    )
    push_queue_depth: Annotated[int, Field(ge=1)] = Field(
        default=DEFAULT_THRESHOLD.depth,
        description="pushes are rejected while more operations than this are queued",
    )
    initial_limit: Annotated[int, Field(ge=1)] = Field(
        default=INITIAL_LIMIT, description="the limit after the start: requests that use the broker at once"
    )
    min_limit: Annotated[int, Field(ge=1)] = Field(
        default=MIN_LIMIT, description="the limit is never lowered below this"
    )
    max_limit: Annotated[int, Field(ge=1)] = Field(
        default=MAX_LIMIT, description="the limit is never raised above this"
    )
    target_latency_ms: Annotated[float, Field(gt=0)] = Field(
        default=TARGET_LATENCY_MS,
        description="the limit is lowered while calls to the broker take longer than this",
    )
    postgres_connections: Annotated[int, Field(ge=3)] = Field(
        default=6, description="connections to PostgreSQL that are reserved for operations"
    )
    postgres_wait_s: Annotated[float, Field(gt=0)] = Field(
        default=0.5, description="seconds to wait for one of the connections that operations have"
    )


class DeadLetterSettings(SettingsSection):
    """How the counts of dead letters are audited, and how long letters and lineage are kept."""

    audit_interval_s: Annotated[float, Field(ge=1)] = Field(
        default=600.0, description="seconds between two audits of the counts of dead letters"
    )
    audit_max_letters: Annotated[int, Field(ge=1)] = Field(
        default=5_000_000, description="about how many dead letters one audit counts again"
    )
    keep_replayed_days: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="days for which redriven dead letters are kept, for the lineage of messages"
    )
    retention_interval_s: Annotated[float, Field(ge=1)] = Field(
        default=60.0, description="seconds between two deletions of dead letters that are too old"
    )


class WorkerSettings(SettingsSection):
    """How messages are worked on, and where outbound requests may go."""

    app: str | None = Field(default=None, description="module and name of the commands, as `module:app`")
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=10, description="messages that a worker process works on at once"
    )
    prefetch: Annotated[int, Field(ge=0, le=1_000)] | None = Field(
        default=None,
        description="messages that are claimed ahead; unset: as many as handlers finish in 50 ms",
    )
    processes: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="worker processes that `weir worker` keeps running"
    )
    drain_s: Annotated[float, Field(gt=0, le=300)] = Field(
        default=25.0, description="seconds that handlers have to finish after SIGTERM"
    )
    allowed_subnets: tuple[str, ...] = Field(
        default=(), description="private subnets that outbound requests may reach, as a JSON list"
    )
    https_only: bool = Field(default=False, description="refuse outbound requests without TLS")
    alive_file: Path | None = Field(
        default=None, description="file that a worker touches every 5 s, for probes of a container"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None, description="port on which a worker of tasks answers /metrics, /livez and /readyz"
    )


class AlertSettings(SettingsSection):
    """How often rules are evaluated, and how notifications are sent."""

    interval_s: Annotated[float, Field(ge=1, le=300)] = Field(
        default=30.0, description="seconds between two evaluations of the rules"
    )
    timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(
        default=15.0, description="seconds that one attempt to send a notification may take"
    )
    link: str = Field(default="", description="address of the dashboard that notifications link to")
    allow_apprise: bool = Field(
        default=False, description="allow Apprise, which sends without the guard on private addresses"
    )


class SecretSettings(SettingsSection):
    """What seals the secrets of environments in PostgreSQL."""

    key_file: Path | None = Field(
        default=None,
        description="file of the keys that seal secrets, in Base64, one per line; the first seals, every one "
        "opens; unset: `secrets.key` in the data directory, with the embedded PostgreSQL only",
    )


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=_DELIMITER, frozen=True, extra="forbid"
    )

    url: ApiUrl | None = Field(
        default=None, description="address of the API that commands ask; unset: that of the data directory"
    )
    token: SecretStr | None = Field(
        default=None,
        description="token that commands send; unset: the operator's token in the data directory",
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        description="address of Redis; `redis+cluster://` names a node of a cluster; unset: the embedded one",
    )
    postgres_url: PostgresUrl | None = Field(
        default=None, description="address of PostgreSQL; unset: the embedded one"
    )
    clickhouse_url: ClickHouseUrl | None = Field(
        default=None, description="address of ClickHouse; unset: the embedded one"
    )
    durable: bool = Field(
        default=False, description="write messages to disk before the reply, not within a second after it"
    )
    shards: Annotated[int, Field(ge=1, le=4_096)] = Field(
        default=4, description="number of shards of Redis; it cannot change once there are messages"
    )
    trace_url: TraceUrl | None = Field(
        default=None, description="address of a trace's page, with `{trace_id}`; pages of messages link to it"
    )
    embedded: EmbeddedSettings = EmbeddedSettings()
    pipeline: PipelineSettings = PipelineSettings()
    warehouse: WarehouseSettings = WarehouseSettings()
    api: ApiSettings = ApiSettings()
    load: LoadSettings = LoadSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    worker: WorkerSettings = WorkerSettings()
    alerts: AlertSettings = AlertSettings()
    secrets: SecretSettings = SecretSettings()


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process. An error about them is one line that says what to do."""
    _refuse_unknown(os.environ)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise Misconfigured(_explained(error)) from None
    except SettingsError:
        raise Misconfigured(_not_a_list(os.environ)) from None


def variables_set(names: Iterable[str]) -> dict[str, str]:
    """The variables with these names that are set, without settings; `weir secret` stores them."""
    return {name: os.environ[name] for name in names if name in os.environ and not name.startswith(PREFIX)}


def opentelemetry_variables() -> dict[str, str]:
    """The variables of OpenTelemetry, which have the same names in every program."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


def describe(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Variable, value and origin of every setting; passwords are masked."""
    given = {name.upper() for name in os.environ}
    for variable, value in _flat(settings):
        yield variable, _shown(value), "environment" if variable in given else "default"


def _shown(value: Any) -> str:
    """The value as text that may be shown. The type of a setting, not its name, makes it secret."""
    if value is None:
        return ""
    return MASK if isinstance(value, SecretStr) else masked_url(str(value))


def _flat(value: BaseModel, prefix: str = PREFIX) -> Iterator[tuple[str, Any]]:
    for name in type(value).model_fields:
        field = getattr(value, name)
        if isinstance(field, BaseModel):
            yield from _flat(field, f"{prefix}{name.upper()}{_DELIMITER}")
        else:
            yield f"{prefix}{name.upper()}", field


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = {variable for variable, _ in _flat(Settings.model_construct())} | _OF_THE_LAUNCHER
    for variable in sorted(environment):
        if variable.upper() in _RENAMED:
            raise Misconfigured(f"`{variable}` is now `{_RENAMED[variable.upper()]}`; set that instead")
        if variable.startswith(PREFIX) and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=0.75)
            hint = f"did you mean `{near[0]}`?" if near else "`weir config show` lists them all"
            raise Misconfigured(f"unknown setting `{variable}`; {hint}")


def _explained(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    variable = PREFIX + _DELIMITER.join(str(part) for part in first["loc"]).upper()
    reason = first["msg"].removeprefix("Value error, ")
    reason = (reason[0].lower() + reason[1:]).replace("input should be", "expected")
    return f"`{variable}`: {reason}, got `{masked_attempt(str(first['input']))}`"


def _not_a_list(environment: Mapping[str, str]) -> str:
    """The error about a list that cannot be read; the library names only the section of the list."""
    given = {name.upper(): value for name, value in environment.items()}
    for variable, default in _flat(Settings.model_construct()):
        if isinstance(default, tuple) and not _is_json(given.get(variable, "[]")):
            return f"`{variable}`: expected a JSON list, got `{given[variable]}`"
    return "a setting is not JSON where JSON is expected; `weir config show` lists them all"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
