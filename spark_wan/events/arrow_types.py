"""Arrow types: how a batch travels, whatever a Spark session or a Delta reader hands over.

What pyspark 4.2 hands to ``mapInArrow`` and takes back, as observed:

- A variant is ``struct<value: binary not null, metadata: binary not null>``, and goes back as such,
  by the *declared* Spark schema, with or without field metadata. Under a null variant both children
  hold empty values, not nulls.
- Struct children bind by position, as columns do: ``metadata`` before ``value`` is a malformed
  variant, and ``{b, a}`` passed for ``struct<a, b>`` swaps them silently.
- Arrow field metadata (``SPARK::metadata::json``) comes from the plan, not from the table: a
  scanned variant has some that the schema does not have. A fingerprint must not depend on it.
- Timestamps carry the session's time zone (inside arrays, maps and structs too). On the way back
  any zone, or none, means the instant.
- Taken back: exact types, large_string and large_binary. Refused: dictionaries, string_view,
  large_list, fixed_size_list, int64 for an int.
"""

from __future__ import annotations

import pyarrow as pa


def arrow_ready(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch as every sender puts it on the wire.

    At every depth, timestamps with a time zone get ``UTC`` (the instants stay), views become plain
    strings and binaries, and dictionaries are decoded. All else stays, field metadata included. A
    batch that is ready is returned itself.
    """
    fields = [_ready_field(field) for field in batch.schema]
    pairs = list(zip(batch.columns, fields, strict=True))
    if all(column.type == field.type for column, field in pairs):
        return batch
    columns = [as_type(column, field.type) for column, field in pairs]
    schema = pa.schema(fields, metadata=batch.schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as a type that has the same values.

    Struct fields are matched by name, since Spark binds them by position. Nested arrays are rebuilt
    around their children: Arrow's cast refuses a null struct with non-nullable fields.
    """
    types, old = pa.types, array.type
    if old == kind:
        return array
    if types.is_dictionary(old):
        return as_type(array.dictionary_decode(), kind)
    if types.is_struct(old):
        places = {field.name.lower(): place for place, field in enumerate(old)}
        children = [as_type(array.field(places[field.name.lower()]), field.type) for field in kind]
        nulls = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if types.is_map(old):
        pairs = [as_type(array.keys, kind.key_type), as_type(array.items, kind.item_type)]
        child = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    elif types.is_nested(old):
        child = as_type(array.values, kind.value_type)
    else:
        return array.cast(kind)
    own_buffers = array.buffers()[: 1 if types.is_fixed_size_list(old) else 2]
    return pa.Array.from_buffers(
        kind, len(array), own_buffers, array.null_count, array.offset, [child]
    )


def _ready_field(field: pa.Field) -> pa.Field:
    return field.with_type(_ready_type(field.type))


def _ready_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _ready_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([_ready_field(field) for field in kind])
    if types.is_list(kind):
        return pa.list_(_ready_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_ready_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_ready_field(kind.value_field), kind.list_size)
    if types.is_map(kind):
        key, item = _ready_field(kind.key_field), _ready_field(kind.item_field)
        return pa.map_(key, item, kind.keys_sorted)
    return kind
