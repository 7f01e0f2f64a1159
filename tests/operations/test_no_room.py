"""A broker that answers 'no room' has not done it; one that does not answer may have."""

from __future__ import annotations

import pytest
from redis import exceptions

from weir.broker.failures import translate
from weir.operations.gates import is_unknown


@pytest.mark.parametrize(
    "error",
    [
        exceptions.OutOfMemoryError("OOM command not allowed when used memory > 'maxmemory'"),
        exceptions.ResponseError("Error running script: @user_script:9: -OOM command not allowed"),
        exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
    ],
)
def test_a_full_redis_is_a_refusal_that_the_producer_hears(error: Exception) -> None:
    refusal = translate(error)
    assert not is_unknown(refusal)
    assert refusal.status == 503
    assert refusal.retry_after_s


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectionError("connection reset"),
        exceptions.TimeoutError("timed out"),
        exceptions.BusyLoadingError("LOADING Redis is loading the dataset in memory"),
    ],
)
def test_silence_leaves_the_outcome_open_and_the_push_is_queued(error: Exception) -> None:
    assert is_unknown(translate(error))
