"""Whether texts of a file are to be compared by a collation, by what Spark wrote beside Parquet's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from lamella.snapshot.schema.collations import collations_in, may_name_collations

_ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"


def collation_problem(properties: Mapping[str, str]) -> str | None:
    """Why the texts of a file with these properties cannot be taken for their bytes; None: they can.

    Spark writes such columns as any text, with the bounds of their bytes, and finds the collation again when it reads
    the file without a schema.
    """
    text = properties.get(_ROW_METADATA)
    if text is None or not may_name_collations(text):
        return None
    try:
        found = collations_in(msgspec.json.decode(text))
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return "Spark's schema in the footer names collations, and cannot be read"
    if not found:
        return None
    listed = ", ".join(f"{path!r} ({collation})" for path, collation in list(found.items())[:10])
    return f"text is compared by its bytes here, and the file has collations: {listed}"
