"""The backend for Django's tasks on a real API, with `manage.py weir_worker` as the worker.

A Django project has its settings for a process, so everything here runs in processes of the project.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from compat.upstream import NOT_APPLICABLE, UPSTREAM
from support.processes import killed_whole
from support.running_api import RunningApi
from support.urls import with_database
from support.waiting import until
from weir.client.core import AsyncWeir
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef
from weir.outbox import migrate, relay

PROJECT = Path(__file__).with_name("project")
START_S = 60.0
SUITE_S = 240.0


@dataclass(frozen=True, kw_only=True)
class Project:
    """The Django project, in an environment of its own."""

    api: RunningApi
    environment: EnvironmentRef
    token: str
    folder: Path

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def run(
        self, *words: str, stores: bool = False, within_s: float = START_S, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """`manage.py` with these words, to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=PROJECT,
            env=self._variables(variables, stores=stores),
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    def python(self, code: str, **variables: str) -> str:
        """What code of the project prints."""
        done = self.run("shell", "-v", "0", "-c", code, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def worker(
        self, *options: str, stores: bool = False, **variables: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`manage.py weir_worker`, killed with everything below it when the block is left."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "weir_worker", *options],
                cwd=PROJECT,
                env=self._variables(variables, stores=stores),
                stdout=log,
                stderr=log,
            )
        with killed_whole(process):
            yield process

    def _variables(self, more: Mapping[str, str], *, stores: bool) -> dict[str, str]:
        found = {**os.environ, "PYTHONWARNINGS": "error"}
        if not stores:
            return found | {"WEIR_URL": self.api.url, "WEIR_TOKEN": self.token} | more
        names = zip(("organization", "project", "environment"), self.environment.names, strict=True)
        found |= {"PROJECT_OPTIONS": json.dumps(dict(names))}
        found |= {"WEIR_REDIS_URL": self.api.redis_url, "WEIR_POSTGRES_URL": self.api.postgres_url}
        return found | {"WEIR_CLICKHOUSE_URL": "http://127.0.0.1:1"} | more


@pytest.fixture
def project(api_process: RunningApi, environment: EnvironmentRef, tmp_path: Path) -> Project:
    token = asyncio.run(_token(api_process.postgres_url, environment))
    return Project(api=api_process, environment=environment, token=token, folder=tmp_path)


async def _token(postgres_url: str, environment: EnvironmentRef) -> str:
    names = dict(zip(("organization", "project", "environment"), environment.names, strict=True))
    async with Database(postgres_url, max_size=1) as database:
        return (await Tokens(database).create(NewToken(name="t", role=Role.ADMIN, **names)))[0]


def _behaviours() -> dict[str, set[str]]:
    """Class -> the tests in it."""
    tree = ast.parse((PROJECT / "behaviours.py").read_text())
    return {
        one.name: {part.name for part in one.body if getattr(part, "name", "").startswith("test")}
        for one in tree.body
        if isinstance(one, ast.ClassDef)
    }


def test_every_test_of_django_tasks_has_its_counterpart_or_a_reason() -> None:
    found = _behaviours()
    for name, wanted in UPSTREAM.items():
        here, reasons = found.get(name, set()), NOT_APPLICABLE.get(name, {})
        assert here | set(reasons) == set(wanted), name
        assert here & set(reasons) == set(), name


@pytest.mark.parametrize("stores", [False, True], ids=["over HTTP", "on the stores"])
async def test_the_backend_behaves_as_the_tests_of_django_tasks_ask(project: Project, stores: bool) -> None:
    with project.worker("--queue", "default", stores=stores) as worker:
        await until(lambda: "working as" in project.log(), within_s=START_S)
        done = await asyncio.to_thread(project.run, "test", "behaviours", within_s=SUITE_S)
        assert done.returncode == 0, done.stderr + project.log()
        ran = sum(len(tests) for tests in _behaviours().values())
        assert f"Ran {ran} tests" in done.stderr
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, START_S) == 0
    log = project.log()
    assert "path=tasks.fail state=RUNNING" in log
    assert "path=tasks.fail state=FAILED" in log
    assert "path=tasks.meaning_of_life state=SUCCESSFUL" in log


@pytest.mark.parametrize("stores", [False, True], ids=["over HTTP", "on the stores"])
async def test_a_task_is_tried_as_often_as_the_options_say(project: Project, stores: bool) -> None:
    names = dict(zip(("organization", "project", "environment"), project.environment.names, strict=True))
    options = {"PROJECT_OPTIONS": json.dumps({**(names if stores else {}), "max_attempts": 2})}
    with project.worker(stores=stores, **options):
        await until(lambda: "working as" in project.log(), within_s=START_S)
        said = await asyncio.to_thread(
            project.python,
            "import tasks, behaviours\n"
            "r = behaviours.finished(tasks.fail_first.enqueue('x' * 20_000))\n"
            "kinds = [e.exception_class.__name__ for e in r.errors]\n"
            "print(r.return_value, r.attempts, len(set(r.worker_ids)), kinds)\n"
            "r = behaviours.finished(tasks.fail.enqueue())\n"
            "print(r.status, r.attempts, len(r.errors))",
            **options,
        )
    assert said.splitlines() == ["[2, 20000] 2 1 ['ValueError']", "FAILED 2 2"]


SIGNALS = """
import asyncio, tasks
from django_tasks import default_task_backend
from django_tasks.signals import task_finished
from weir.contrib.django.attempt import DjangoAttempt
from weir.contrib.django.record import DjangoCall
from weir.tasks.context import TaskContext

def tell(sender, task_result, **_):
    print(task_result.status)
    if task_result.args:
        raise ValueError("a receiver failed")

task_finished.connect(tell)

def attempt(args, over=False):
    call = DjangoCall(args=args, kwargs={}, id="1")
    context = TaskContext(
        task="tasks.echo", queue="default", message_id="1", attempt=1, headers={}, is_cancelled=lambda: over
    )
    made = DjangoAttempt(default_task_backend.app, tasks.echo, call, context, max_attempts=1)
    try:
        asyncio.run(made.run())
    except ValueError as error:
        print(error)

"""


RECORDS = """
from weir.contrib.django.record import CallRecord, DjangoCall
from weir.model.limits import MAX_RESULT_BYTES
import json

def size(record):
    return len(json.dumps(record.document()).encode())

record = CallRecord(task="tasks.echo", queue="default", call=DjangoCall(args=[], kwargs={}))
for attempt in range(1, 301):
    record = record.attempted("h" * 60 + str(attempt), attempt=attempt, now_ms=1)
    record = record.failed(ValueError("\\u0436" * 5_000), now_ms=2)
    assert size(record) <= MAX_RESULT_BYTES, attempt
    record = CallRecord.of(json.loads(json.dumps(record.document())))
print(record.errors != (), size(record.done("x" * 13_000, now_ms=3)) <= MAX_RESULT_BYTES)
"""


def test_old_errors_of_a_task_never_keep_its_value_from_being_kept(project: Project) -> None:
    assert project.python(RECORDS) == "True True"


ODD = """
class Odd(BaseException):
    pass

for error in (StopIteration("end"), GeneratorExit("end"), Odd("end")):
    tasks.ODD = error
    try:
        attempt([])
    except BaseException as raised:
        print(type(raised).__name__)
"""


def test_whatever_a_django_task_raises_ends_its_attempt(project: Project) -> None:
    said = project.python(SIGNALS.replace("tasks.echo, call", "tasks.raise_oddly, call") + ODD).splitlines()
    assert said == ["FAILED", "RuntimeError", "FAILED", "RuntimeError", "FAILED", "Odd"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("attempt([])", ["SUCCESSFUL"]),
        ("attempt([1])", ["SUCCESSFUL", "a receiver failed"]),
        ("attempt([], over=True)", []),
    ],
    ids=["done", "a receiver raises", "over before its thread"],
)
def test_an_attempt_tells_once_that_its_task_finished(project: Project, call: str, said: list[str]) -> None:
    assert project.python(SIGNALS + call).splitlines() == said


async def test_a_task_that_nobody_finished_fails_and_says_why_and_a_cancelled_one_is_gone(
    project: Project,
) -> None:
    with project.worker("--queue", "default"):
        await until(lambda: "working as" in project.log(), within_s=START_S)
    code = "import tasks; [print(tasks.echo.using(queue_name='idle').enqueue(n).id) for n in (1, 2)]"
    lapsed, cancelled = (await asyncio.to_thread(project.python, code)).split()
    async with AsyncWeir(project.api.url, token=project.token) as weir:
        # As a worker does that dies: it takes the message, and is not heard of again.
        assert [one.id for one in await weir.pop("idle", lease=1)] == [lapsed]
        assert await weir.cancel(cancelled)
    code = (
        "import tasks, behaviours\n"
        f"r = behaviours.finished(tasks.echo.get_result('{lapsed}'))\n"
        "print(r.status, r.args, r.errors[0].exception_class.__name__)\n"
        f"tasks.echo.get_result('{cancelled}')"
    )
    done = await asyncio.to_thread(project.run, "shell", "-v", "0", "-c", code)
    assert done.stdout.strip() == "FAILED [1] TaskFailed", done.stderr
    assert f"TaskResultDoesNotExist: {cancelled}" in done.stderr


async def test_a_task_of_a_transaction_exists_if_and_only_if_it_commits(
    project: Project, postgres_url: str
) -> None:
    name = f"shop_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = with_database(postgres_url, name)
    await migrate(url)
    info = psycopg.conninfo.conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": info.get("user"),
        "HOST": info.get("host"),
        "PORT": info.get("port"),
        "PASSWORD": info.get("password"),
    }
    variables = {
        "PROJECT_DATABASES": json.dumps({"default": database}),
        "PROJECT_OPTIONS": json.dumps({"outbox": "default"}),
    }
    code = (
        "import tasks, behaviours\n"
        "from django.db import transaction\n"
        "try:\n"
        "    with transaction.atomic():\n"
        "        lost = tasks.meaning_of_life.enqueue()\n"
        "        raise RuntimeError\n"
        "except RuntimeError: pass\n"
        "with transaction.atomic():\n"
        "    kept = tasks.own_id.using(priority=9).enqueue()\n"
        "    assert tasks.own_id.get_result(kept.id) == kept\n"
        "plain = tasks.meaning_of_life.enqueue()\n"
        "print(lost.id); print(kept.id); print(plain.id)"
    )
    with project.worker(**variables):
        await until(lambda: "working as" in project.log(), within_s=START_S)
        lost, kept, plain = (await asyncio.to_thread(project.python, code, **variables)).split()
        assert (lost[:7], kept[:7], len(plain)) == ("outbox:", "outbox:", 36)
        async with AsyncWeir(project.api.url, token=project.token) as weir:
            relaying = asyncio.create_task(relay(url, weir))
            code = (
                "import tasks, behaviours\n"
                f"print(behaviours.finished(tasks.own_id.get_result('{kept}')).return_value)\n"
                "from django_tasks.exceptions import TaskResultDoesNotExist\n"
                f"try: tasks.own_id.get_result('{lost}')\n"
                "except TaskResultDoesNotExist as error: print('none of', error)"
            )
            said = await asyncio.to_thread(project.python, code, **variables)
            await cancel_and_wait([relaying])
    assert said.splitlines() == [kept, f"none of {lost}"]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokn": "x"}, "`OPTIONS` has no `tokn`; did you mean `token`?"),
        ({"max_attempts": 0}, "`max_attempts` of `OPTIONS` is 0; give a whole number from 1 to 1000"),
        ({"timeout": -1}, "`timeout` of `OPTIONS` is -1; give a number of seconds above 0"),
        ({"url": 7}, "`url` of `OPTIONS` is not a text"),
        ({"outbox": "shop"}, "`outbox` names `shop`, which is not in `DATABASES`"),
    ],
)
def test_manage_py_check_says_what_is_wrong(project: Project, options: dict[str, object], said: str) -> None:
    done = project.run("check", PROJECT_OPTIONS=json.dumps(options))
    assert done.returncode == 1
    assert said in done.stderr


def test_manage_py_check_finds_nothing_wrong_with_good_settings(project: Project) -> None:
    done = project.run("check")
    assert (done.returncode, done.stdout.strip()) == (0, "System check identified no issues (0 silenced).")


def test_manage_py_check_says_that_no_api_is_known(project: Project, tmp_path: Path) -> None:
    done = project.run("check", WEIR_URL="", WEIR_TOKEN="", WEIR_EMBEDDED__DATA_DIR=str(tmp_path))
    assert "in Django give `OPTIONS` their `url` and `token`" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backend", "nope"), "`TASKS` has no backend `nope`; it has default, immediate"),
        (("--backend", "immediate"), "a worker of Weir needs `WeirBackend`"),
        (("--queue", "nope"), "the app `django` has no queue `nope`; it has default, idle, queue_1"),
    ],
)
def test_a_worker_that_cannot_work_says_why(project: Project, words: tuple[str, ...], said: str) -> None:
    done = project.run("weir_worker", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


async def test_several_processes_find_the_project(project: Project) -> None:
    with project.worker("--processes", "2", "--concurrency", "4"):
        await until(lambda: project.log().count("working as") == 2, within_s=START_S)
        said = await asyncio.to_thread(
            project.python,
            "import tasks, behaviours; print(behaviours.finished(tasks.echo.enqueue(7)).return_value)",
        )
    assert said == "{'args': [7], 'kwargs': {}}"
