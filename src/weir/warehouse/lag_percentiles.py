"""Spells the SQL that reads the lags of messages at the moment when a process got them.

A tier keeps the lags of a bucket as a sketch (DDSketch): counts of lags by size, in steps of 2 %. Merging
adds counts, so the answer is the same in every tier and in any order. It is within 1 % of the lag at the rank
that numpy calls `inverted_cdf`.

The engine takes the lag with the index `level * (count - 1)`, rounded down, which is one lower. With the
greatest lag added once more the count is one greater, and a level lower by `_STEP_BACK` keeps a product that
is whole from rounding up: the index is then that of `inverted_cdf`.
"""

from __future__ import annotations

LEVELS = (0.5, 0.95, 0.99)
RELATIVE_ERROR = 0.01
_STEP_BACK = 1e-12
_LEVELS = ", ".join(map(str, LEVELS))
_LOWER_LEVELS = ", ".join(f"{level - _STEP_BACK:.12f}" for level in LEVELS)


def lags_sql(rows: str) -> str:
    """The columns of the lags of all `rows` of a tier: count, sum, maximum and percentiles."""
    greatest = f"max({rows}.lag_ms_max)"
    sketch = f"quantilesDDMergeState({RELATIVE_ERROR}, {_LEVELS})({rows}.lag_ms_sketch)"
    one_more = f"arrayReduce('quantilesDDState({RELATIVE_ERROR}, {_LOWER_LEVELS})', [{greatest}])"
    return f"""sum({rows}.lag_ms_count) AS lag_count,
    sum({rows}.lag_ms_sum) AS lag_sum_ms,
    {greatest} AS lag_max_ms,
    arrayMap(lag -> least(lag, lag_max_ms), finalizeAggregation({one_more} + {sketch})) AS lag_percentiles"""
