"""`pip install weir-queue` brings a command that works; what needs more says in one line what to install."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.packages import PROJECT, InstalledWith, import_all
from weir.cli.extras import COMMAND_EXTRAS, DISTRIBUTION, MODULES, missing_extra
from weir.cli.main import COMMANDS

IMPORTED_AS = {
    "backports-zstd": "backports",
    "chdb-core": "chdb",
    "cel-expr-python": "cel_expr_python",
    "pyyaml": "yaml",
}
"""What a package is imported as, where its own name does not say it."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> InstalledWith:
    return InstalledWith(tmp_path_factory.mktemp("base"))


def test_the_bare_package_has_the_client_and_a_command(base: InstalledWith) -> None:
    assert base.weir("--version").stdout.startswith("weir ")
    assert "  queue " in base.weir("--help").stdout
    loaded = base.python("import weir\nfor name in weir.__all__: getattr(weir, name)")
    assert (loaded.returncode, loaded.stderr) == (0, "")


def test_commands_that_ask_the_api_need_no_extra(base: InstalledWith) -> None:
    modules = {
        name: f"weir.cli.{module}" for name, (module, _) in COMMANDS.items() if name not in COMMAND_EXTRAS
    }
    assert len(modules) >= 15
    assert base.python(import_all(modules)).stdout == ""
    answer = base.weir("queue", "list", "--data-dir", str(base.site / "none"))
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "start one with `weir up`" in answer.stderr


@pytest.mark.parametrize("command", COMMAND_EXTRAS)
def test_a_missing_extra_is_one_line_with_the_command_to_run(base: InstalledWith, command: str) -> None:
    words = {"pipeline": "pipeline run", "spec": "spec fmt x"}.get(command, command)
    answer = base.weir(*words.split())
    extras = ",".join(COMMAND_EXTRAS[command])
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1), answer.stderr
    assert answer.stderr.startswith("weir: this command needs the extra")
    assert f"pip install '{DISTRIBUTION}[{extras}]'" in answer.stderr


@pytest.mark.parametrize("extra", ["direct", "worker", "server", "spark", "embedded"])
def test_an_extra_brings_what_its_commands_import(tmp_path: Path, extra: str) -> None:
    modules = {
        name: f"weir.cli.{COMMANDS[name][0]}"
        for name, extras in COMMAND_EXTRAS.items()
        if name in COMMANDS and (extra in extras or (extra == "spark" and name == "pipeline"))
    }
    modules |= {
        "direct": {"direct mode": "weir.client.direct"},
        "spark": {"the pipeline": "weir.pipeline.process", "analysis": "weir.serve.deadletters"},
        "embedded": {"the engine": "weir.embedded.chdb.engine", "the stack": "weir.embedded.open"},
    }.get(extra, {})
    assert InstalledWith(tmp_path, extra).python(import_all(modules)).stdout == ""


def test_direct_mode_without_its_extra_says_what_to_install(base: InstalledWith) -> None:
    answer = base.python("import weir\nweir.Weir(['redis://127.0.0.1:1', 'http://127.0.0.1:1'])")
    assert "pip install 'weir-queue[direct]'" in answer.stderr


def test_up_without_spark_says_how_to_go_on(tmp_path: Path) -> None:
    answer = InstalledWith(tmp_path, "embedded").weir("up", "--data-dir", str(tmp_path / "data"))
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "pip install 'weir-queue[spark]'" in answer.stderr
    assert "`weir up --without pipeline`" in answer.stderr


def test_a_module_of_ones_own_that_is_missing_is_not_blamed_on_an_extra() -> None:
    assert (
        missing_extra(ModuleNotFoundError(name="my_handlers"), ["worker", "--app", "my_handlers:app"]) is None
    )


@pytest.mark.parametrize(
    ("extra", "words", "ready"),
    [("server", ("serve", "--port", "0"), "serving http"), ("worker", ("worker",), "working as")],
)
def test_an_extra_is_enough_for_its_role(
    tmp_path: Path, extra: str, words: tuple[str, ...], ready: str,
    redis_url: str, database_url: str, warehouse_url: str,
) -> None:  # fmt: skip
    installed = InstalledWith(tmp_path, extra)
    environment = installed.environment(
        WEIR_REDIS_URL=redis_url, WEIR_POSTGRES_URL=database_url, WEIR_CLICKHOUSE_URL=warehouse_url
    )
    with subprocess.Popen(
        installed.command(*words), env=environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if ready in line:
                break
        assert ready in seen[-1], "".join(seen)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=40) == 0


def test_a_worker_that_cannot_export_traces_says_what_to_install_and_works(
    tmp_path: Path, redis_url: str, database_url: str, warehouse_url: str
) -> None:
    installed = InstalledWith(tmp_path, "worker")
    environment = installed.environment(
        WEIR_REDIS_URL=redis_url, WEIR_POSTGRES_URL=database_url, WEIR_CLICKHOUSE_URL=warehouse_url,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318",
    )  # fmt: skip
    with subprocess.Popen(
        installed.command("worker"), env=environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "working as" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=40) == 0
    (warning,) = [line for line in seen if "no traces" in line]
    assert "pip install 'weir-queue[otlp]'" in warning
    assert "working as" in seen[-1]


def test_the_modules_of_an_extra_are_those_that_the_project_names() -> None:
    optional = PROJECT["optional-dependencies"]
    for extra, modules in MODULES.items():
        named = [one for one in map(Requirement, optional[extra]) if one.name != PROJECT["name"]]
        assert {IMPORTED_AS.get(one.name, re.sub("-", "_", one.name)) for one in named} == set(modules)
    assert PROJECT["name"] == DISTRIBUTION
