"""The loader, the contract headers, the key map and the translation of Redis' exceptions."""

from __future__ import annotations

import inspect
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions
from redis.connection import DefaultParser

from weir.broker import keys
from weir.broker.failures import ScriptFailed, is_store_failure, translate
from weir.broker.replies import Word
from weir.broker.runner import RedisConnection, connect
from weir.broker.scripts import VERBS, ScriptError, resolve, script
from weir.errors import BrokerUnavailable, Misconfigured
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.gates import is_unknown

LUA = files("weir.broker") / "lua"
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60)


def test_an_include_appears_once_before_its_first_use() -> None:
    parts = {"a": '--- include "b"\nA', "b": "B"}
    assert resolve('--- include "a"\n--- include "b"\nmain', include=parts.__getitem__).split() == [
        "B",
        "A",
        "main",
    ]


def test_an_include_that_includes_itself_is_refused() -> None:
    parts = {"a": '--- include "b"', "b": '--- include "a"'}
    with pytest.raises(ScriptError, match="`a` includes itself"):
        resolve('--- include "a"', include=parts.__getitem__)


def test_a_missing_include_is_refused() -> None:
    with pytest.raises(FileNotFoundError):
        script("no_such_verb")


def test_the_list_of_verbs_is_the_folder() -> None:
    assert sorted(VERBS) == sorted(path.name[:-4] for path in LUA.iterdir() if path.name.endswith(".lua"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_script_is_headed_by_its_contract(verb: str) -> None:
    source = (LUA / f"{verb}.lua").read_text()
    assert source.startswith(f"-- {verb}: ")
    assert "-- Reply {'ok'" in source
    assert not re.search(r"KEYS\[|ARGV\[\d", source)
    assert "--- include" not in script(verb).source


@pytest.mark.parametrize("verb", VERBS)
def test_every_word_that_a_script_answers_is_known(verb: str) -> None:
    words = re.findall(r"return \{'(\w+)'", script(verb).source)
    assert set(words) <= {word.value for word in Word}


def test_every_include_is_used_and_is_one_function() -> None:
    everything = "".join(script(verb).source for verb in VERBS)
    for path in (LUA / "includes").iterdir():
        functions = re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE)
        if path.name != "call.lua":
            assert functions == [path.name[:-4]]
            assert len(re.findall(rf"\b{functions[0]}\(", everything)) > 1


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES), min_size=2, max_size=2, unique=True))
def test_no_two_queues_share_a_key(names: list[tuple[str, str, str, str]]) -> None:
    refs = [QueueRef(organization=o, project=p, environment=e, queue=q) for o, p, e, q in names]
    idents = [keys.queue_ident(ref) for ref in refs]
    assert idents[0] != idents[1]
    assert not idents[0].startswith(idents[1])
    assert [keys.queue_of(ident) for ident in idents] == refs
    assert [keys.environment_part(ident) for ident in idents] == [
        keys.environment_ident(
            EnvironmentRef(organization=r.organization, project=r.project, environment=r.environment)
        )
        for r in refs
    ]


EXCEPTIONS = [
    one
    for _, one in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(one, exceptions.RedisError | exceptions.RedisClusterException)
]


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_every_exception_of_the_driver_has_a_translation(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    error.args = ("it failed",)
    assert isinstance(translate(error), BrokerUnavailable | Misconfigured)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "out of memory"),
        ("MISCONF Redis is configured to save", "disk"),
        ("READONLY You can't write against a read only replica.", "read-only replica"),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("CLUSTERDOWN The cluster is down", "cluster is down"),
        ("MASTERDOWN Link with MASTER is down", "primary is down"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "moving this slot"),
        ("BUSY Redis is busy running a script.", "busy"),
    ],
)
def test_refusals_of_the_server_say_what_to_do(reply: str, words: str) -> None:
    error = translate(DefaultParser.parse_error(reply))
    assert isinstance(error, BrokerUnavailable)
    assert words in error.message
    assert error.retry_after_s == 1.0


async def test_an_error_of_a_script_is_not_an_outage(redis_url: str) -> None:
    """Redis answered, so nobody else's call has a reason to wait."""
    client = connect(RedisConnection(url=redis_url))
    try:
        with pytest.raises(exceptions.ResponseError) as failed:
            await client.execute_command("EVAL", "return redis.call('GET', {}) + 1", 0)
    finally:
        await client.aclose()
    error = translate(failed.value)
    assert isinstance(error, ScriptFailed)
    assert (error.status, error.retryable) == (500, False)
    assert is_store_failure(error)
    assert not is_unknown(error)
