"""A folder with Weir and exactly the packages that some of its extras bring, taken from this environment."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

import weir

PACKAGE = Path(weir.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]


def project_requirements(*extras: str) -> list[Requirement]:
    """The requirements of the project with these extras, and with the extras that these name."""
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    found: list[Requirement] = []
    for one in map(Requirement, lines):
        found += project_requirements(*one.extras) if one.name == PROJECT["name"] else [one]
    return found


class InstalledWith:
    """Weir as it is after `pip install 'weir-queue[…]'`, without the checkout around it."""

    def __init__(self, folder: Path, *extras: str) -> None:
        self.site = folder / "site-packages"
        self.site.mkdir(parents=True)
        (self.site / "weir").symlink_to(PACKAGE)
        for found in _closure(project_requirements(*extras)):
            for name in _top_names(found):
                target = Path(str(found.locate_file(name)))
                if not (self.site / name).exists():
                    (self.site / name).symlink_to(target)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-S", "-m", "weir.cli", *words]

    def environment(self, **settings: str) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.site), "HOME": "/nonexistent", **settings}

    def weir(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(self.command(*words))

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-S", "-c", code])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment(), cwd=self.site, capture_output=True, text=True, timeout=60
        )


def _closure(requirements: list[Requirement]) -> Iterator[Distribution]:
    """The distributions that these requirements bring, each once."""
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            name = re.sub(r"[-_.]+", "-", one.name).lower()
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found = distribution(one.name)
            yield found
            waiting += [
                inner
                for inner in map(Requirement, found.requires or ())
                if inner.marker is None or inner.marker.evaluate({"extra": extra})
            ]


def _top_names(found: Distribution) -> set[str]:
    """The names of the packages and modules of a distribution, and of its metadata."""
    return {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}


def import_all(modules: Mapping[str, str]) -> str:
    """Code that imports these modules and prints each that cannot be imported."""
    return (
        "import importlib\n"
        f"for name, module in {dict(modules)!r}.items():\n"
        "    try: importlib.import_module(module)\n"
        "    except ImportError as error: print(name, error)\n"
    )
