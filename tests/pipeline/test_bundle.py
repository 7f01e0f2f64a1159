"""The archive for workers without Weir: what is in it, and why it could not be written."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import weir
from support.disks import on_a_small_disk
from weir.errors import Conflict, Misconfigured
from weir.pipeline.bundle import required_distributions, write_bundle

WEIR = Path(weir.__file__).parent


def names(*requirements: str) -> set[str]:
    return {one.name for one in required_distributions([Requirement(line) for line in requirements])}


def test_requirements_are_followed_through_extras_and_markers() -> None:
    assert {"clickhouse-connect", "lz4", "pyarrow"} <= {
        name.replace("_", "-") for name in names("clickhouse-connect[arrow]")
    }
    assert "numpy" in names("pandas")
    assert "uvloop" not in names("uvicorn")


def test_the_packages_of_spark_come_with_spark() -> None:
    assert names("pyspark>=4", "py4j", "packaging") == {"packaging"}


def test_a_requirement_that_is_not_installed_is_named() -> None:
    with pytest.raises(Misconfigured, match="`no-such-package` is not installed here"):
        names("no-such-package")


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").write_text("mine")
    with pytest.raises(Conflict, match="exists; remove it"):
        write_bundle(tmp_path / "bundle.tar.gz")
    assert (tmp_path / "bundle.tar.gz").read_text() == "mine"


def test_a_package_that_is_linked_to_its_source_is_refused(tmp_path: Path) -> None:
    linked = tmp_path / "linked-1.0.dist-info"
    linked.mkdir()
    (linked / "METADATA").write_text("Metadata-Version: 2.1\nName: linked\nVersion: 1.0\n")
    (linked / "RECORD").write_text("__editable__.linked-1.0.pth,,\nlinked-1.0.dist-info/METADATA,,\n")
    sys.path.append(str(tmp_path))
    try:
        with pytest.raises(Misconfigured, match="the files of `linked` are not known"):
            write_bundle(tmp_path / "bundle.tar.gz", packages=["linked"])
    finally:
        sys.path.remove(str(tmp_path))
    assert not list(tmp_path.glob("*bundle*"))


@pytest.mark.slow
def test_a_bundle_brings_weir_to_a_bare_python(tmp_path: Path) -> None:
    done = write_bundle(tmp_path / "bundle.tar.gz", packages=["pyyaml"])
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with tarfile.open(done.path) as archive:
        archive.extractall(tmp_path / "environment", filter="data")
    code = "import sys, pyarrow, redis, weir.pipeline.landing; print(sys.prefix, weir.__file__)"
    said = subprocess.run(
        ["./environment/bin/python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path / 'bare' / 'bin'}:/usr/bin:/bin"},
    ).stdout.split()  # fmt: skip
    assert said == [str(tmp_path / "bare"), str(tmp_path / "environment/packages/weir/__init__.py")]
    missing = subprocess.run(
        [tmp_path / "environment" / "bin" / "python"], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "WEIR_WORKER_PYTHON": "no-python"},
    )  # fmt: skip
    assert (missing.returncode, "this host has no no-python" in missing.stderr) == (127, True)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    small = on_a_small_disk(tmp_path, size="2m")
    assert small, "no small disk can be mounted here"
    script = 'cd "$1"; shift; "$@"; status=$?; ls -A; exit $status'
    weir_bundle = [sys.executable, "-m", "weir.cli", "pipeline", "bundle"]
    done = subprocess.run(
        [*small, "sh", "-c", script, "sh", str(tmp_path), *weir_bundle],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_weir_finds_its_migrations_scripts_and_grammar_in_a_zip(tmp_path: Path) -> None:
    """As `--py-files` hands it to workers that have the other packages."""
    with zipfile.ZipFile(tmp_path / "weir.zip", "w") as archive:
        for path in WEIR.rglob("*"):
            if path.suffix in (".py", ".sql", ".lua", ".lark") and "web" not in path.parts:
                archive.write(path, path.relative_to(WEIR.parent))
    code = (
        "import weir, weir.broker.scripts, weir.spec.parse\n"
        "from weir.control.migrate import read_migrations\n"
        "counts = [len(read_migrations(f'weir.{room}.migrations')) for room in ('control', 'warehouse')]\n"
        "print(weir.__file__, *counts)"
    )
    # -S leaves out the path to this checkout; the other packages are named.
    others = str(Path(str(metadata.distribution("redis").locate_file(""))))
    said = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{tmp_path / 'weir.zip'}:{others}"}, cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    where, control, warehouse = said.stdout.split()
    assert where.startswith(str(tmp_path / "weir.zip"))
    assert int(control) == len(list((WEIR / "control" / "migrations").glob("*.sql")))
    assert int(warehouse) == len(list((WEIR / "warehouse" / "migrations").glob("*.sql")))
