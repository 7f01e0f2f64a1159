"""The text of tokens, and what principals reach."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.control.token_texts import mint, parse
from weir.control.tokens import NewToken, Tokens
from weir.errors import Conflict, Forbidden, InvalidInput, NotFound
from weir.model.names import EnvironmentRef


def principal(**scope: str) -> Principal:
    return Principal(token_id="t", role=Role.WRITE, organization="o", **scope)


def test_a_minted_token_is_understood() -> None:
    text, parts = mint("prod ✓ / eu")
    assert text.startswith("weir_prodeu_")
    assert parse(text) == parts
    assert len(parts.digest) == 32


def test_no_two_tokens_are_alike() -> None:
    assert len({mint("x")[0] for _ in range(100)}) == 100


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=200), st.characters())
def test_a_token_with_one_other_character_is_no_token(place: int, char: str) -> None:
    text, _ = mint("prod")
    place %= len(text)
    changed = text[:place] + char + text[place + 1 :]
    assert changed == text or parse(changed) is None


@settings(deadline=None)
@given(st.text())
def test_any_text_may_be_asked_about(text: str) -> None:
    assert parse(text) is None


def test_roles_include_the_ones_before() -> None:
    principal().demand(Role.READ)
    principal().demand(Role.WRITE)
    with pytest.raises(Forbidden):
        principal().demand(Role.ADMIN)


def test_a_principal_chooses_only_what_its_scope_leaves_open() -> None:
    wide, narrow = principal(), principal(project="p", environment="e")
    assert narrow.choose() == wide.choose(project="p", environment="e")
    assert narrow.choose(organization="o", project="p", environment="e") == narrow.choose()
    for other in ({"organization": "x"}, {"project": "x"}, {"environment": "x"}):
        with pytest.raises(NotFound):
            narrow.choose(**other)
    with pytest.raises(InvalidInput):
        wide.choose(project="p")


def test_scopes_cover_what_lies_inside_them() -> None:
    project = principal(project="p")
    assert project.covers(organization="o", project="p", environment="e")
    assert not project.covers(organization="o", project=None, environment=None)
    assert not project.covers(organization="o", project="q", environment="e")
    assert not project.covers(organization="x", project="p", environment="e")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"environment": "e"},
        {"lifetime_ms": 0},
        {"organization": "a\nb"},
        {"project": "x" * 256},
        {"organization": "weir"},
    ],
)
def test_a_token_needs_a_whole_scope(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        NewToken(**{"name": "n", "role": Role.READ, "organization": "o", **wrong})  # type: ignore[arg-type]


async def test_rotations_of_one_token_at_once_give_one_token(
    database: Database, environment: EnvironmentRef
) -> None:
    tokens = Tokens(database)
    owner = Principal(token_id="t", role=Role.ADMIN, organization=environment.organization)
    _, old = await tokens.create(
        NewToken(name="n", role=Role.WRITE, organization=environment.organization), by=owner
    )
    answers = await asyncio.gather(
        *(tokens.rotate(old.id, by=owner) for _ in range(6)), return_exceptions=True
    )
    assert sum(not isinstance(answer, BaseException) for answer in answers) == 1, answers
    assert sum(isinstance(answer, Conflict) for answer in answers) == 5
