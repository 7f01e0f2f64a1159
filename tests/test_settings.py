"""Settings: what is wrong with them is one line that says what was expected."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import weir
from weir.errors import Misconfigured
from weir.settings import describe, load_settings


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WEIR_REDIS_URL", "localhost:6379"),
        ("WEIR_REDIS_URL", "http://localhost:6379"),
        ("WEIR_POSTGRES_URL", "postgresql://"),
        ("WEIR_POSTGRES_URL", "postgresql://host:port/x"),
        ("WEIR_CLICKHOUSE_URL", "clickhouse://x:1"),
        ("WEIR_DURABLE", "perhaps"),
        ("WEIR_EMBEDDED__REDIS_PORT", "70000"),
        ("WEIR_EMBEDDED__REDIS_PORT", "many"),
    ],
)
def test_a_bad_value_says_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured) as caught:
        load_settings()
    assert str(caught.value).startswith(f"`{variable}`: expected ")
    assert str(caught.value).endswith(f", got `{value}`")


def test_a_password_in_a_bad_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_REDIS_URL", "rediss://me:hunter2@host:x/0")
    with pytest.raises(Misconfigured) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_a_password_is_masked_where_settings_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_REDIS_URL", "redis://me:hunter2@host:6379/0")
    shown = {variable: (value, origin) for variable, value, origin in describe(load_settings())}
    assert shown["WEIR_REDIS_URL"] == ("redis://me:********@host:6379/0", "environment")
    assert shown["WEIR_DURABLE"] == ("False", "default")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://h/db?sslmode=require&password=hunter2",
            "postgresql://h/db?sslmode=require&password=********",
        ),
        (
            "postgresql://u:hunter2@h:5432/db?sslpassword=hunter2",
            "postgresql://u:********@h:5432/db?sslpassword=********",
        ),
        ("postgresql://u:hunter2@h1,h2/db", "postgresql://u:********@h1,h2/db"),
        ("postgresql://u:hunt@er2@h/db", "postgresql://u:********@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
    ],
)
def test_passwords_are_masked_wherever_they_stand_in_a_url(
    monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    monkeypatch.setenv("WEIR_POSTGRES_URL", url)
    assert shown_settings()["WEIR_POSTGRES_URL"] == shown


def test_a_type_says_what_is_secret_and_not_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_API__METRICS_TOKEN", "hunter2")
    monkeypatch.setenv("WEIR_TOKEN", "hunter2")
    shown = shown_settings()
    assert shown["WEIR_API__TOKEN_FRESH_S"] == "15.0"
    assert shown["WEIR_API__TOKEN_STALE_S"] == "600.0"
    assert shown["WEIR_API__METRICS_TOKEN"] == shown["WEIR_TOKEN"] == "********"


def shown_settings() -> dict[str, str]:
    return {variable: value for variable, value, _ in describe(load_settings())}


@pytest.mark.parametrize(
    "value", ["u:hunter2@host/db", "postgresql:/u:hunter2@host", "postgresql://u:hunt/er2@host"]
)
def test_a_password_in_what_is_not_a_url_is_not_shown(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("WEIR_POSTGRES_URL", value)
    with pytest.raises(Misconfigured, match="expected") as caught:
        load_settings()
    assert "hunt" not in str(caught.value)


def test_a_list_that_is_not_json_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_WORKER__ALLOWED_SUBNETS", "10.0.0.0/8")
    with pytest.raises(Misconfigured, match="`WEIR_WORKER__ALLOWED_SUBNETS`: expected a JSON list, got `10"):
        load_settings()


def test_an_unknown_name_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_EMBEDDED__REDIS_PROT", "1")
    with pytest.raises(Misconfigured, match="did you mean `WEIR_EMBEDDED__REDIS_PORT`"):
        load_settings()


def test_the_version_is_the_same_everywhere() -> None:
    pyproject = tomllib.loads((Path(weir.__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["project"]["version"] == weir.__version__


def test_a_renamed_setting_is_answered_with_its_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_PIPELINE__MAX_LANES", "2")
    with pytest.raises(Misconfigured, match="is now `WEIR_PIPELINE__MAX_READ_TASKS`"):
        load_settings()
