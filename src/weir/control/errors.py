"""psycopg's exceptions stop here: each becomes an error of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from weir.errors import Conflict, ControlUnavailable, InvalidInput, WeirError

_TRANSIENT = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.QueryCanceled,
    pg.InsufficientResources,
    pg.OperatorIntervention,
    pg.ReadOnlySqlTransaction,
    pg.IdleInTransactionSessionTimeout,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
)


def translated(error: psycopg.Error) -> WeirError:
    """The error of the tree for an exception of psycopg."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, _TRANSIENT):
        return ControlUnavailable(f"PostgreSQL does not answer ({text}); try again", retry_after_s=1)
    if isinstance(error, psycopg.IntegrityError):
        return Conflict(f"PostgreSQL refused the change ({text})")
    if isinstance(error, psycopg.DataError):
        return InvalidInput(f"PostgreSQL cannot store that value ({text})")
    return WeirError(f"PostgreSQL failed ({text})")


def failed(error: psycopg.Error) -> bool:
    """Whether PostgreSQL failed. If it refuses a value or a change, that is an answer and not a failure."""
    return not isinstance(error, (psycopg.IntegrityError, psycopg.DataError))


@contextmanager
def translating() -> Iterator[None]:
    """Replace exceptions of psycopg that leave the block by errors of the tree."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error
