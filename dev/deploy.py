"""The checks of `weir check --deploy`: of the image, the manifests, the units and the rules in `deploy/`.

The linters have their own environment, because their packages conflict with Weir's packages.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dev import ROOT
from dev.tools import ensure_tools, promtool

DEPLOY = ROOT / "deploy"
UNITS = tuple(sorted((DEPLOY / "systemd").glob("*.service")))
EXPOSURE = 3.0
"""The highest exposure that `systemd-analyze security` may give a unit; 10 is a service without a sandbox."""
_VENV = ROOT / ".venv-lint"
_LOCK = ROOT / "requirements-lint-deploy.lock"
_PROGRAM = "/opt/weir/bin/weir"
_YAML_STYLE = {
    "extends": "default",
    "rules": {
        "line-length": {"max": 180},
        "document-start": "disable",
        "comments": {"min-spaces-from-content": 1},
    },
}
_SKIPPED = {
    "CKV_K8S_35": "Weir takes its settings from the environment, which a Kubernetes secret fills here",
    "CKV_K8S_43": "the operator builds the image, and names its digest in an overlay",
}
"""Checks of checkov that do not apply here, and why."""


def deploy_checks() -> Iterator[tuple[str, list[str]]]:
    """Every check: its name, and the command that fails if something is wrong."""
    yield "image", [_tool("hadolint"), str(DEPLOY / "Dockerfile")]
    yield "yaml", [_tool("yamllint"), "-s", "-d", json.dumps(_YAML_STYLE), *map(str, yaml_files())]
    yield "schema", [_tool("kubernetes-validate"), "--strict", "--quiet", *map(str, manifests())]
    scan = ("--framework", "dockerfile", "kubernetes", "secrets", "--skip-check", ",".join(_SKIPPED))
    # Without `--skip-download` it would ask its vendor's server for more rules.
    yield "policies", [_tool("checkov"), "-d", str(DEPLOY), *scan, "--quiet", "--compact", "--skip-download"]
    rules = map(str, (DEPLOY / "prometheus").glob("*.yaml"))
    yield "rules", [promtool() or "promtool", "check", "rules", *rules]
    for unit in UNITS:
        limit = f"--threshold={EXPOSURE * 10:.0f}"
        yield unit.stem, ["systemd-analyze", "security", "--no-pager", "--offline=true", limit, str(unit)]


def verify_units() -> str:
    """The complaints of systemd about the units; empty if there are none.

    It requires that the program of a unit exists, so this Python takes its place.
    """
    with tempfile.TemporaryDirectory() as folder:
        for unit in UNITS:
            Path(folder, unit.name).write_text(unit.read_text().replace(_PROGRAM, sys.executable))
        paths = [str(Path(folder, unit.name)) for unit in UNITS]
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths]
        done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 and not done.stderr.strip() else done.stdout + done.stderr


def manifests() -> list[Path]:
    """The files of Kubernetes objects; the kustomization is not a Kubernetes object."""
    return [path for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if path.stem != "kustomization"]


def yaml_files() -> list[Path]:
    return sorted(DEPLOY.rglob("*.yaml"))


def ensure_linters(say: Callable[[str], None]) -> None:
    """Install the locked linters, if the lock changed."""
    ensure_tools(say)
    stamp, wanted = _VENV / ".stamp", hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say(f"installing the linters into {_VENV}")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(_VENV)], check=True)
    install = [uv, "pip", "install", "-q", "--python", _tool("python"), "--require-hashes", "-r", str(_LOCK)]
    subprocess.run(install, check=True)
    stamp.write_text(wanted)


def _tool(name: str) -> str:
    return str(_VENV / "bin" / name)
