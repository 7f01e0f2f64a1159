"""Packages: what is named is used, what is used is named, and they install to the same files every time."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import weir
from weir.embedded.java import MINIMUM as JAVA

SOURCE = Path(weir.__file__).parent
PROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
USED_BY_OTHERS = {
    "async-timeout": "redis-py imports it on Python 3.11.0 to 3.11.2",
    "pandas": "pyspark imports it",
    "tzdata": "zoneinfo reads time zones from it where the machine has none",
}
"""Packages that no module of Weir imports, and who needs them."""


def test_no_two_packages_write_the_same_file() -> None:
    """They install in parallel, so either could win, and one checkout would differ from the next."""
    owners: dict[str, list[str]] = defaultdict(list)
    for distribution in distributions():
        for file in distribution.files or ():
            owners[str(file)].append(distribution.name)
    shared = {file: names for file, names in owners.items() if len(set(names)) > 1}
    assert not shared


def test_every_package_that_is_named_is_imported() -> None:
    used = {name for one in imported_packages() for name in distributions_of(one)}
    assert declared() - used == USED_BY_OTHERS.keys()


def test_every_package_that_is_imported_is_named() -> None:
    named = declared()
    unnamed = {one for one in imported_packages() if not named & distributions_of(one)}
    assert unnamed == set()


def test_pages_name_the_versions_that_the_project_asks_for() -> None:
    pages = [SOURCE.parents[1] / name for name in ("README.md", "docs/reference/pipeline.md")]
    text = "\n".join(page.read_text() for page in pages)
    (spark,) = (text for text in PROJECT["optional-dependencies"]["spark"] if text.startswith("pyspark"))
    assert set(re.findall(r"Spark (\d+\.\d+)", text)) == set(re.findall(r">=(\d+\.\d+)", spark))
    assert {f">={version}" for version in re.findall(r"Python (\d+\.\d+)", text)} == {
        PROJECT["requires-python"]
    }
    assert {int(version) for version in re.findall(r"Java (\d+)", text)} == {JAVA}


def declared() -> set[str]:
    """Every package of the project and its extras, as registries spell it."""
    extras = PROJECT["optional-dependencies"].values()
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    # An extra may name others of the same package.
    return {canonical(re.match(r"[\w.-]+", text)[0]) for text in texts} - {PROJECT["name"]}


def imported_packages() -> set[str]:
    """The top-level names that modules of Weir import, without the standard library and Weir itself."""
    found = {name for file in SOURCE.rglob("*.py") for name in imports_of(file)}
    return found - sys.stdlib_module_names - {"weir"}


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (one.name.partition(".")[0] for one in names)
            case ast.ImportFrom(module=str() as module, level=0):
                yield module.partition(".")[0]
            case ast.Call(
                func=ast.Name(id="find_spec") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str() as module)],
            ):
                yield module.partition(".")[0]


def distributions_of(package: str) -> set[str]:
    return {canonical(name) for name in known_packages().get(package, [])}


@cache
def known_packages() -> Mapping[str, list[str]]:
    """Importable name -> the packages that bring it."""
    return packages_distributions()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
