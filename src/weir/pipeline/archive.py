"""The archive: every landed event, in Parquet files by metric and hour.

    <root>/metric=queue/hour=2026-11-16T00/<token>.parquet
    <root>/metric=log/hour=2026-11-16T00/keep=2592000/<token>.parquet

The name of a file is the token of its read task, which follows from the ids in it. A replayed batch writes
the same file again, and a rename makes it appear whole or not at all, so each event is stored once.

Messages in the log of a queue are kept for as many seconds as the queue promised when they ended. So each
file of the log holds messages with the same promise, and is removed as a whole.

A file states the layout version of its events; the first files do not, and are of version 1. Files of every
version are read into the columns that the metric has now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from weir.errors import Conflict
from weir.model.durations import HOUR_MS
from weir.pipeline.definition import MetricDefinition
from weir.telemetry.events import EventKind
from weir.telemetry.stream_ids import StreamId, format_id, parse_id

_RANGES = b"weir.ranges"
_VERSION = b"weir.version"
_HOUR = re.compile(r"/hour=([^/]+)/")
_KEEP = re.compile(r"/keep=(\d+)/")
ShardRange = tuple[int, str, str]
"""A shard, and the range of ids that a file covers: after the first, up to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    path: str
    hour_ms: int
    size: int = 0
    """Its bytes."""

    @property
    def keep_s(self) -> int | None:
        """For how many seconds its events are kept; None outside of the log."""
        found = _KEEP.search(self.path)
        return None if found is None else int(found[1])

    @property
    def folder(self) -> str:
        """The folder of the file. Its files may overlap, and may be joined; each event counts once."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedFile:
    """A file of the archive before it is stored."""

    hour_ms: int
    name: str
    """The path below the folder of its hour."""
    content: bytes


class Archive:
    """A folder of Parquet files, local or in any file system of pyarrow."""

    def __init__(self, root: str) -> None:
        self._files, self._root = fs.FileSystem.from_uri(root)

    def write(
        self, definition: MetricDefinition, events: pa.Table, *, token: str, ranges: Sequence[ShardRange]
    ) -> None:
        """Encode events and store them, one file per hour."""
        for file in encoded_files(definition, events, token=token, ranges=ranges):
            self.put(definition.name, file)

    def put(self, metric: str, file: EncodedFile) -> None:
        """Store an encoded file; storing it again changes nothing."""
        self._put(self._folder(metric, file.hour_ms), file.name, file.content)

    def files(self, metric: str, *, from_ms: int, to_ms: int) -> list[ArchiveFile]:
        """The files that may hold events from `from_ms` until before `to_ms`, in order of time."""
        selector = fs.FileSelector(f"{self._root}/metric={metric}", recursive=True, allow_not_found=True)
        found = [
            ArchiveFile(path=info.path, hour_ms=_hour_of(info.path), size=info.size)
            for info in self._files.get_file_info(selector)
            if info.type is fs.FileType.File and info.path.endswith(".parquet")
        ]
        wanted = [file for file in found if from_ms - HOUR_MS < file.hour_ms < to_ms]
        return sorted(wanted, key=lambda file: (file.hour_ms, file.path))

    def hours(self, metric: str) -> list[int]:
        """The hours that have a file."""
        return sorted({file.hour_ms for file in self.files(metric, from_ms=0, to_ms=2**62)})

    def read(self, path: str, kind: EventKind) -> pa.Table:
        """The events of one file in today's columns; a file of a newer Weir is refused."""
        with self._files.open_input_file(path) as stream:
            events = pq.read_table(stream)
        version = int((events.schema.metadata or {}).get(_VERSION, b"1"))
        if version > kind.version:
            raise Conflict(
                f"the archive file `{path}` holds `{kind.name}` events of version {version}, and this "
                f"program knows {kind.version}; start a newer Weir"
            )
        return _as_now(kind, events)

    def ranges(self, path: str) -> list[ShardRange]:
        """The id ranges that a file covers."""
        with self._files.open_input_file(path) as stream:
            texts = (pq.read_schema(stream).metadata or {}).get(_RANGES, b"[]")
        return [(shard, after, until) for shard, after, until in json.loads(texts)]

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._files.delete_file(path)

    def rows(self, path: str) -> int:
        """How many events a file holds, from its footer."""
        with self._files.open_input_file(path) as stream:
            return int(pq.read_metadata(stream).num_rows)

    def remove_hour(self, metric: str, hour_ms: int) -> None:
        """Remove an hour and its folder."""
        self._files.delete_dir(self._folder(metric, hour_ms))

    def _folder(self, metric: str, hour_ms: int) -> str:
        hour = datetime.fromtimestamp(hour_ms / 1_000, UTC).strftime("%Y-%m-%dT%H")
        return f"{self._root}/metric={metric}/hour={hour}"

    def _put(self, folder: str, name: str, content: bytes) -> None:
        self._files.create_dir(f"{folder}/{name}".rpartition("/")[0], recursive=True)
        # Write a draft and rename it: readers never see half a file, and a killed writer leaves none.
        draft = f"{folder}/.{uuid4().hex}.draft"
        try:
            with self._files.open_output_stream(draft) as stream:
                stream.write(content)
            self._files.move(draft, f"{folder}/{name}")
        except BaseException:
            with suppress(OSError):
                self._files.delete_file(draft)
            raise


def encoded_files(
    definition: MetricDefinition, events: pa.Table, *, token: str, ranges: Sequence[ShardRange]
) -> list[EncodedFile]:
    """The events as files of the archive: one per hour, for the log one per hour and promise. Pure."""
    hours = np.asarray(events["at_ms"].to_numpy(), np.uint64) // HOUR_MS
    found = []
    for hour in np.unique(hours):
        # Nearly every batch lies in one hour, and filtering would copy it.
        mine = events if hours.min() == hours.max() else events.filter(pa.array(hours == hour))
        for folder, part in _by_promise(definition, mine):
            content = encoded(definition, part, ranges=ranges)
            name = f"{folder}{token}.parquet"
            found.append(EncodedFile(hour_ms=int(hour) * HOUR_MS, name=name, content=content))
    return found


def _by_promise(definition: MetricDefinition, events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The events by how long they are kept, each with the folder below their hour."""
    if not definition.holds_bodies:
        yield "", events
        return
    promised = np.asarray(events["keep_s"].to_numpy())
    for keep_s in np.unique(promised):
        yield keep_folder(int(keep_s)), events.filter(pa.array(promised == keep_s))


def keep_folder(keep_s: int | None) -> str:
    """The folder below its hour for files that are kept for so many seconds."""
    return "" if keep_s is None else f"keep={keep_s}/"


def encoded(definition: MetricDefinition, events: pa.Table, *, ranges: Sequence[ShardRange]) -> bytes:
    """Events as the content of one file, with the id ranges that it covers."""
    events = events.replace_schema_metadata(
        {_RANGES: json.dumps(list(ranges)).encode(), _VERSION: str(definition.kind.version).encode()}
    )
    buffer = pa.BufferOutputStream()
    pq.write_table(
        events,
        buffer,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(definition.kind.dimensions),
        column_encoding=dict.fromkeys(_wide_integers(events), "DELTA_BINARY_PACKED"),
    )
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def covered_once(
    ranges: Sequence[tuple[str, list[ShardRange]]],
) -> Iterator[tuple[str, list[ShardRange]]]:
    """For files of one hour, in any order: each file with the part of its ranges that no other file counts.

    Ranges overlap if a start without a checkpoint planned other batches than before, or if joining files was
    interrupted. Each file holds all events of its ranges in its hour.
    """
    counting: dict[str, list[ShardRange]] = {path: [] for path, _ in ranges}
    covered: dict[int, StreamId] = {}
    pieces = [
        (shard, parse_id(after), parse_id(until), path)
        for path, mine in ranges
        for shard, after, until in mine
    ]
    for shard, after, until, path in sorted(pieces):
        floor = max(covered.get(shard, after), after)
        if until > floor:
            counting[path].append((shard, format_id(floor), format_id(until)))
            covered[shard] = until
    yield from counting.items()


def joined_ranges(ranges: Iterable[ShardRange]) -> list[ShardRange]:
    """The same ranges, with adjacent ones joined."""
    joined: list[ShardRange] = []
    for shard, after, until in sorted(ranges, key=lambda one: (one[0], parse_id(one[1]), parse_id(one[2]))):
        if joined and joined[-1][0] == shard and joined[-1][2] == after:
            joined[-1] = (shard, joined[-1][1], until)
        else:
            joined.append((shard, after, until))
    return joined


def within(events: pa.Table, ranges: Iterable[ShardRange]) -> pa.Table:
    """The events whose ids lie in these ranges."""
    shards = events["shard"].to_numpy()
    ms, sequences = events["stream_ms"].to_numpy(), events["stream_sequence"].to_numpy()
    keep = np.zeros(events.num_rows, bool)
    for shard, after, until in ranges:
        (after_ms, after_sequence), (until_ms, until_sequence) = parse_id(after), parse_id(until)
        later = (ms > after_ms) | ((ms == after_ms) & (sequences > after_sequence))
        beyond = (ms > until_ms) | ((ms == until_ms) & (sequences > until_sequence))
        keep |= (shards == shard) & later & ~beyond
    return events if keep.all() else events.filter(pa.array(keep))


def _wide_integers(events: pa.Table) -> list[str]:
    """Columns that are stored as differences."""
    # Differences are small: 1.4 bytes per event instead of 6.2, in the same time (0012).
    return [one.name for one in events.schema if pa.types.is_integer(one.type) and one.type.bit_width >= 32]


def _as_now(kind: EventKind, events: pa.Table) -> pa.Table:
    """Events of any version in today's columns; a field that a file lacks is 0, a text is empty."""
    for field in kind.fields:
        number = pa.from_numpy_dtype(np.dtype(f"u{field.width}"))
        if field.name not in events.column_names:
            events = events.append_column(field.name, pa.array(np.zeros(events.num_rows), number))
        elif events.schema.field(field.name).type != number:
            at = events.column_names.index(field.name)
            events = events.set_column(at, field.name, events[field.name].cast(number))
    for text in kind.texts:
        if text.name not in events.column_names:
            content = pa.binary() if text.binary else pa.string()
            events = events.append_column(text.name, pa.array([b""] * events.num_rows, content))
    positions = ("stream_ms", "stream_sequence", "at_ms", "shard")
    fields = (field.name for field in kind.fields_and_texts)
    names = (*positions, *kind.dimensions, *fields, kind.samples)
    return events.select([name for name in names if name in events.column_names])


def _hour_of(path: str) -> int:
    found = _HOUR.search(path)
    assert found is not None, path
    return int(datetime.strptime(found[1], "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp()) * 1_000
