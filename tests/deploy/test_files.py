"""The files in `deploy/` fit each other, the package and what it says to Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import httpx2
import yaml

import weir
from dev import ROOT
from dev.deploy import DEPLOY, UNITS
from dev.tools import promtool
from support.running_api import RunningApi

DASHBOARD = DEPLOY / "grafana" / "dashboards" / "weir-prometheus.json"
RULES = DEPLOY / "prometheus" / "weir.rules.yaml"
NAME = re.compile(r"\b(weir_\w+|dead_job_count)\b")
SUFFIX = re.compile(r"_(bucket|count|sum)$")
VERSIONS = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def test_the_version_of_the_image_is_that_of_the_package() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r'image\.version="([^"]+)"', dockerfile) == [weir.__version__]
    texts = [path.read_text() for path in (DEPLOY / "compose.yaml", *(DEPLOY / "kubernetes").glob("*.yaml"))]
    tags = {tag for text in texts for tag in re.findall(r"image: weir:(\S+)|newTag: (\S+)", text)}
    assert {"".join(tag) for tag in tags} == {weir.__version__}


def test_the_image_installs_what_is_tested() -> None:
    tested = dict(VERSIONS.findall((ROOT / "requirements.lock").read_text()))
    shipped = dict(VERSIONS.findall((DEPLOY / "requirements.lock").read_text()))
    assert len(shipped) > 40
    assert {name: version for name, version in shipped.items() if tested.get(name) != version} == {}


def test_no_lock_names_where_packages_come_from() -> None:
    locks = [*ROOT.glob("requirements*.lock"), DEPLOY / "requirements.lock"]
    assert len(locks) >= 4
    assert [path.name for path in locks if re.search(r"://|--index|--extra-index", path.read_text())] == []


def test_the_build_sees_every_file_that_it_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {name for name in names if not (ROOT / name).exists()} == set()
    seen = set(re.findall(r"^!(\S+)", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    assert names == seen


def test_the_kustomization_names_every_manifest() -> None:
    folder = DEPLOY / "kubernetes"
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == sorted(
        path.name for path in folder.glob("*.yaml") if path.stem != "kustomization"
    )


def test_every_password_of_compose_stands_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text()))
    assert wanted <= set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.MULTILINE))


def test_every_unit_is_sandboxed_alike() -> None:
    for unit in UNITS:
        text = unit.read_text()
        for line in ("User=weir", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="):
            assert f"\n{line}\n" in text, (unit.name, line)


def test_promtool_accepts_the_rules() -> None:
    tool = promtool()
    assert tool, "promtool is missing; `./weir test` gets it, or install Debian's package `prometheus`"
    done = subprocess.run([tool, "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_panels_ask_for_metrics_that_exist(api: RunningApi) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [rule["expr"] for rule in rules]
    names = {name for text in asked for name in NAME.findall(text)}
    known = _told(api) | _spelled()
    assert len(names) > 25
    assert {name for name in names if not {name, SUFFIX.sub("", name)} & known} == set()


def test_every_rule_says_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules if not {"summary", "action"} <= rule["annotations"].keys()] == []
    assert {rule["labels"]["severity"] for rule in rules} == {"warning", "critical"}


def _told(api: RunningApi) -> set[str]:
    text = httpx2.get(f"{api.url}/metrics", headers={"authorization": f"Bearer {api.token}"}).text
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def _spelled() -> set[str]:
    """Names in the code, since some are told only after an audit or an evaluation, or by the pipeline."""
    sources = Path(weir.__file__).parent.rglob("*.py")
    found = {name for path in sources for name in re.findall(r'"(weir_\w+)"', path.read_text())}
    return found | {f"{name}_total" for name in found}
