"""Packs Weir and the packages that it needs into an archive for Spark workers that have neither.

A bundle holds packages and a launcher, but no interpreter: it runs on any Python of the same minor version,
wherever a worker has it. Spark's own packages come with the Spark of the worker.
"""

from __future__ import annotations

import gzip
import io
import os
import platform
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import weir
from weir.errors import Conflict, InvalidInput, Misconfigured

BUNDLE_FOLDER = "environment"
"""The folder into which Spark unpacks a bundle, beside each executor."""
BUNDLE_PYTHON = f"./{BUNDLE_FOLDER}/bin/python"

_PACKAGES = "packages"
_EXTRAS = ("worker", "server", "spark")
_DISTRIBUTION = "weir-queue"
# The worker's own Spark brings these packages and puts them on the path.
_OF_SPARK = frozenset({"pyspark", "py4j"})
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_LAUNCHER = f"""\
#!/bin/sh
# Runs this host's Python {_VERSION} with the packages of this bundle.
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
python=${{WEIR_WORKER_PYTHON:-python{_VERSION}}}
command -v "$python" >/dev/null 2>&1 || {{
  echo "weir: this host has no $python; install Python {_VERSION} or name it with WEIR_WORKER_PYTHON" >&2
  exit 127
}}
PYTHONPATH=$here/{_PACKAGES}${{PYTHONPATH:+:$PYTHONPATH}} exec "$python" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    path: Path
    size_bytes: int
    packages: int
    """How many distributions it holds, with Weir."""
    runs_on: str
    """The hosts that it runs on."""


def write_bundle(output: Path, *, packages: Sequence[str] = ()) -> Bundle:
    """Write a bundle with Weir, its requirements, and `packages`, which are installed distributions."""
    output = output.absolute()
    if output.exists():
        raise Conflict(f"`{output}` exists; remove it, or name another file with `--output`")
    wanted = required_distributions([*_requirements(), *(_requirement(name) for name in packages)])
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with partial.open("xb") as file:
            _write(file, wanted)
        # A link fails if the file has appeared in the meantime; a rename would replace it.
        os.link(partial, output)
    except FileExistsError:
        raise Conflict(f"`{output}` exists; remove it, or name another file with `--output`") from None
    except OSError as error:
        raise Misconfigured(
            f"`{output}` could not be written ({error.strerror}); choose a folder with room for some hundred "
            "megabytes by `--output`"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return Bundle(
        path=output,
        size_bytes=output.stat().st_size,
        packages=len(wanted) + 1,
        runs_on=f"{platform.system()} {platform.machine()}, Python {_VERSION}",
    )


def required_distributions(requirements: Sequence[Requirement]) -> list[metadata.Distribution]:
    """The installed distributions that these requirements ask for, directly or through each other."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in _OF_SPARK or name == _DISTRIBUTION:
            continue
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                found[name] = _installed(requirement.name)
                waiting += _required_by(found[name].requires or [], extra)
    return [found[name] for name in sorted(found)]


def _required_by(lines: Sequence[str], extra: str) -> list[Requirement]:
    """The requirements of a distribution that hold here with this extra."""
    requirements = [Requirement(line) for line in lines]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": extra})]


def _requirements() -> list[Requirement]:
    """The requirements of Weir itself: from its metadata, or in a checkout from the project's file."""
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
        return [one for extra in ("", *_EXTRAS) for one in _required_by(lines, extra)]
    except metadata.PackageNotFoundError:
        project = tomllib.loads((_weir_folder().parents[1] / "pyproject.toml").read_text())["project"]
        optional = project["optional-dependencies"]
        return [
            Requirement(line)
            for lines in (project["dependencies"], *(optional[extra] for extra in _EXTRAS))
            for line in lines
        ]


def _requirement(name: str) -> Requirement:
    try:
        return Requirement(name)
    except ValueError:
        raise InvalidInput(f"`{name}` is not the name of a package") from None


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise Misconfigured(
            f"`{name}` is not installed here; install it into this environment (`pip install "
            "'weir-queue[spark]'` brings what Weir requires)"
        ) from None


def _write(file: io.BufferedWriter, wanted: Sequence[metadata.Distribution]) -> None:
    # Without times and owners in it, the same packages make the same bytes.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        _add(archive, "bin/python", _LAUNCHER.encode(), mode=0o755)
        for distribution in wanted:
            for path, source in _files_of(distribution):
                _add(archive, f"{_PACKAGES}/{path}", source.read_bytes())
        for source in sorted(_weir_folder().rglob("*")):
            below = source.relative_to(_weir_folder().parent)
            if source.suffix != ".pyc" and source.is_file() and not _is_page(below):
                _add(archive, f"{_PACKAGES}/{below}", source.read_bytes())


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a distribution with their paths below the folder of packages."""
    name, files = distribution.name, distribution.files
    if files is None or any(path.name.startswith("__editable__") for path in files):
        raise Misconfigured(
            f"the files of `{name}` are not known, since it was not installed as a wheel; install Weir and "
            f"`{name}` with pip into a virtual environment, and make the bundle there"
        )
    for path in sorted(files, key=str):
        # Scripts are outside of the folder of packages, and workers run none.
        if ".." not in path.parts and path.suffix != ".pyc":
            yield str(path), Path(str(distribution.locate_file(path)))


def _is_page(path: Path) -> bool:
    """Whether a file belongs to the pages of the dashboard, which only the API serves."""
    return path.parts[:2] == ("weir", "dashboard") and path.suffix != ".py"


def _weir_folder() -> Path:
    return Path(weir.__file__).parent
