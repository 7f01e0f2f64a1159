"""Finds Java and Spark on this machine, and checks that they work together."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from weir.errors import Misconfigured

MINIMUM = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')
_HINT = "install Java 17 or later (Debian: `apt install openjdk-17-jre-headless`) or set JAVA_HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    path: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    version: str


async def find_java() -> Java:
    """The Java that Spark will use; raises an error with a remedy if there is none or it is too old."""
    path = _java_path()
    if path is None:
        raise Misconfigured(f"Java was not found; {_HINT}")
    status, text = await _output(path, "-version")
    match = _VERSION.search(text)
    if status != 0 or match is None:
        raise Misconfigured(f"`{path}` does not say its version; {_HINT}")
    if int(match[1]) < MINIMUM:
        raise Misconfigured(f"`{path}` is Java {match[1]}{match[2]}, which is too old; {_HINT}")
    return Java(path=path, version=f"{match[1]}{match[2]}")


_NO_SPARK = "PySpark is not installed; install it (pip install 'weir-queue[spark]')"


async def find_spark(java: Java) -> Spark:
    """The Spark of this environment; loads its jars once to prove that this Java runs them."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        raise Misconfigured(_NO_SPARK) from None
    package = find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        raise Misconfigured(_NO_SPARK)
    jars = Path(next(iter(package.submodule_search_locations))) / "jars"
    classpath = os.pathsep.join((str(jars / "*"),))
    main = "org.apache.spark.deploy.SparkSubmit"
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    status, text = await _output(java.path, *options, "-cp", classpath, main, "--version")
    if status != 0 or installed not in text:
        raise Misconfigured(f"Spark {installed} does not run on `{java.path}` ({text.strip()[-120:]})")
    return Spark(version=installed)


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        return str(path) if os.access(path, os.X_OK) else None
    return shutil.which("java")


async def _output(*argv: str) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return 1, str(error)
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace")
