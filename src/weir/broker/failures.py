"""Turns exceptions of the Redis driver into errors of the tree. Others pass: they are bugs of Weir."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from weir.errors import BrokerUnavailable, Misconfigured, Unavailable, WeirError
from weir.redis_client import DRIVER_ERRORS

RETRY_AFTER_S = 1.0

PASSING: tuple[type[Exception], ...] = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
    exceptions.ReadOnlyError,
    exceptions.RedisClusterException,
    OSError,
)
"""Passing trouble: the same call may well succeed in a moment."""

_REFUSED: tuple[type[Exception], ...] = (
    exceptions.AuthenticationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
    exceptions.ExternalAuthProviderError,
)

_WORDS = {
    "OOM": "Redis is out of memory; acknowledge or dead-letter messages, or raise `maxmemory`",
    "MISCONF": "Redis cannot write to its disk; free space there",
    "LOADING": "Redis is loading its data; try again in a moment",
    "READONLY": "this Redis is a read-only replica; point Weir at the primary",
    "NOREPLICAS": "Redis has too few replicas to accept writes",
    "BUSY": "Redis is busy with a script; try again in a moment",
    "CLUSTERDOWN": "the Redis cluster is down",
    "MASTERDOWN": "the Redis primary is down",
    "TRYAGAIN": "the Redis cluster is moving this slot; try again in a moment",
    "UNKILLABLE": "Redis is busy with a script; try again in a moment",
    "NEWER": "a newer Weir changed this queue, and this one does not know its layout; start a newer Weir",
}
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    # The driver gave up after it was sent to and fro.
    (exceptions.ClusterError, "TRYAGAIN"),
)
"""The driver cuts these words from the text. A class stands before the class that it extends."""
_REFUSING = ("OOM", "MISCONF", "NEWER", "NODISK")
"""Redis refuses the call with these words. Nothing was done, so it is not queued as an operation."""
_ANY_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")


_NO_DISK = re.compile(r"\bNODISK (.*)")
"""The scripts' own refusal, which says which disk it is; see `no_disk.lua`."""
DISK_RETRY_AFTER_S = 5.0
_IN_SCRIPT = "user_script"
"""Every server says this of an error of a script's own."""


class ScriptFailed(WeirError):
    """A script ended in an error of its own. Redis answered, so only this call failed: a mistake in Weir."""

    title = "Script failed"


def is_store_failure(error: WeirError) -> bool:
    """Whether Redis failed; a refusal, such as NotFound, is an answer."""
    return isinstance(error, Unavailable | ScriptFailed)


def is_passing(error: Exception) -> bool:
    """Whether the call may be sent again right away."""
    return isinstance(error, PASSING) and not isinstance(error, _REFUSED)


def translate(error: Exception) -> WeirError:
    """The error of the tree for an exception of the driver."""
    if isinstance(error, _REFUSED):
        forbidden = {"forbidden": True} if isinstance(error, exceptions.NoPermissionError) else {}
        return Misconfigured(f"Redis refused the credentials: {error}; check the Redis URL", **forbidden)
    if (told := _NO_DISK.search(str(error))) is not None:
        return no_disk(told[1])
    word = _word_of(error)
    if not word and _IN_SCRIPT in str(error):
        return ScriptFailed(f"a script of Weir failed in Redis: {error}; please report it")
    reason = _WORDS.get(word, f"Redis did not do it: {type(error).__name__}: {error}")
    refused = {"refused": True} if word in _REFUSING else {}
    return BrokerUnavailable(reason, retry_after_s=RETRY_AFTER_S, **refused)


def _word_of(error: Exception) -> str:
    """The word of Redis for what is wrong; empty if it says none of the known ones."""
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    # An error inside a script is quoted in the middle of a longer text.
    found = _ANY_WORD.search(str(error))
    return found[0] if found else ""


def no_disk(text: str) -> BrokerUnavailable:
    """The refusal of a push because Redis' disk is nearly full. It is not queued: that grows a disk too."""
    return BrokerUnavailable(text, retry_after_s=DISK_RETRY_AFTER_S, refused=True)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the tree in place of the driver's exceptions."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error) from error
