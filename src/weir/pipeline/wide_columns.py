"""Columns as Spark takes them: it has no unsigned numbers, so they become signed and wide. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

MAX_SIGNED = 2**63 - 1
_SPARK_NAMES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int64(): "long",
    pa.list_(pa.int64()): "array<long>",
}


def widened(table: pa.Table) -> pa.Table:
    """The same rows in types that Spark has."""
    columns = {name: _widened(table[name]) for name in table.column_names}
    return pa.table(columns).combine_chunks()


def spark_schema(schema: pa.Schema) -> str:
    """The schema of such rows after `widened`, as Spark reads it."""
    return ", ".join(f"{column.name} {_SPARK_NAMES[_wide_type(column.type)]}" for column in schema)


def _wide_type(narrow: pa.DataType) -> pa.DataType:
    if pa.types.is_list(narrow):
        return pa.list_(pa.int64())
    if pa.types.is_dictionary(narrow):
        return narrow.value_type
    return narrow if pa.types.is_string(narrow) or pa.types.is_binary(narrow) else pa.int64()


def _widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_uint64(column.type):
        # Only an event that was made up has larger numbers.
        column = pc.min_element_wise(column, pa.scalar(MAX_SIGNED, pa.uint64()), skip_nulls=False)
    return column.cast(_wide_type(column.type))
