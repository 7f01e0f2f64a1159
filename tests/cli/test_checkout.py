"""`test`, `check` and `bench` are commands of a checkout; an installed Weir does not have them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import weir
from support.order import LONGEST, TESTS, sort_by_length

PACKAGE = Path(weir.__file__).parent
ROOT = PACKAGE.parents[1]
OF_A_CHECKOUT = ("test", "check", "bench")


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is seen in a folder without the checkout around it."""
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "weir").symlink_to(PACKAGE)
    return {**os.environ, "PYTHONPATH": str(site)}


def run(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weir.cli", *words]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)


def test_an_installed_weir_neither_lists_nor_runs_them(installed: dict[str, str]) -> None:
    listed = run("--help", environment=installed).stdout
    assert "  doctor " in listed
    for name in OF_A_CHECKOUT:
        assert f"  {name} " not in listed
        assert run(name, environment=installed).returncode == 2


def test_a_checkout_lists_and_runs_them_from_any_folder() -> None:
    listed = run("--help").stdout
    assert all(f"  {name} " in listed for name in OF_A_CHECKOUT)
    assert "broker" in run("bench").stdout


def test_the_wheel_holds_the_package_and_nothing_else() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/weir"]
    assert [path.name for path in (ROOT / "src").iterdir() if path.is_dir()] == ["weir"]


def test_a_whole_run_begins_with_the_files_that_take_longest() -> None:
    small, large, longest = TESTS / "a" / "test_a.py", TESTS / "b" / "test_b.py", TESTS / LONGEST[0]
    items = [SimpleNamespace(path=path) for path in (small, large, large, longest)]
    sort_by_length(items)  # type: ignore[arg-type]
    assert [item.path for item in items] == [longest, large, large, small]
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
