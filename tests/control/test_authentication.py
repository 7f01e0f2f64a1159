"""What is remembered about tokens: real ones stay however many are made up, and nothing unverified counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weir.control import authentication
from weir.control.authentication import CachedAuthenticator
from weir.control.principals import Role
from weir.control.token_texts import TokenText, _checksum, mint
from weir.control.tokens import Token
from weir.errors import Overloaded, Unauthenticated


class Register:
    """Tokens by id; counts who is asked for, and answers when it may."""

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        self.asked: list[str] = []
        self.asking = self.most_asking = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def add(self) -> str:
        text, parts = mint("test")
        self.tokens[parts.id] = token(parts)
        return text

    async def find(self, token_id: str) -> Token | None:
        self.asked.append(token_id)
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        try:
            await self.may_answer.wait()
        finally:
            self.asking -= 1
        return self.tokens.get(token_id)


def token(parts: TokenText) -> Token:
    return Token(
        id=parts.id,
        name="test",
        role=Role.WRITE,
        organization="o",
        project="p",
        environment="e",
        secret_sha256=parts.digest,
        created_at_ms=0,
        expires_at_ms=None,
        revoked_at_ms=None,
        last_used_at_ms=None,
        replaces=None,
    )


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def register() -> Register:
    return Register()


def over(register: Any, time: Time | None = None) -> CachedAuthenticator:
    return CachedAuthenticator(register, fresh_s=10, stale_s=100, monotonic=time or Time())


def made_up() -> str:
    return mint("madeup")[0]


async def test_made_up_tokens_do_not_push_out_real_ones(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MAX_ENTRIES", 3)
    authenticator, real = over(register), register.add()
    await authenticator.authenticate(real)
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(made_up())
    asked = len(register.asked)
    await authenticator.authenticate(real)
    assert len(register.asked) == asked
    assert authenticator.recall(real) is not None
    assert len(authenticator._unknown) == 3


async def test_made_up_tokens_take_few_connections_and_never_delay_known_ones(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MAX_WAITING", 50)
    time = Time()
    authenticator, real = over(register, time), register.add()
    await authenticator.authenticate(real)
    register.may_answer.clear()
    strangers = [asyncio.create_task(authenticator.authenticate(made_up())) for _ in range(60)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert [type(task.exception()) for task in strangers if task.done()] == [Overloaded] * 10
    assert register.most_asking == authentication._LOOKUPS
    time.now_s = 11
    known = asyncio.create_task(authenticator.authenticate(real))
    while register.asking <= authentication._LOOKUPS:  # noqa: ASYNC110
        await asyncio.sleep(0)
    register.may_answer.set()
    assert (await known).organization == "o"
    await asyncio.gather(*strangers, return_exceptions=True)


async def test_a_credential_is_recalled_only_if_it_was_verified_as_it_is(register: Register) -> None:
    time = Time()
    authenticator, real = over(register, time), register.add()
    assert authenticator.recall(real) is None
    await authenticator.authenticate(real)
    found = authenticator.recall(real)
    assert found is not None
    assert (found[0].holder, found[1]) == (("o", "p", "e"), True)
    identity = real.split("_")[2]
    same_id = made_up().split("_")
    forged = f"weir_test_{identity}_{same_id[3]}"
    assert authenticator.recall(f"{forged}_{_checksum(forged)}") is None
    assert authenticator.recall("nonsense") is None
    time.now_s = 50
    stale = authenticator.recall(real)
    assert stale is not None
    assert stale[1] is False
    time.now_s = 100
    assert authenticator.recall(real) is None
    authenticator.forget(identity)
    assert authenticator.recall(real) is None
