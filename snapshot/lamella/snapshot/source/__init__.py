"""External tables: whose files they are, what those are now, and how that differs from what a table holds."""

from lamella.snapshot.source.constants import require_path_columns
from lamella.snapshot.source.definition import (
    IDENTITY,
    KIND,
    PREFIX,
    REFUSED,
    VERSION,
    refuse_added,
    refuse_columns,
    refuse_properties,
    source_of,
    source_properties,
)
from lamella.snapshot.source.difference import Difference, difference
from lamella.snapshot.source.evolving import Evolution, evolution, first_columns, first_properties, nullable_columns
from lamella.snapshot.source.reading import Reader
from lamella.snapshot.source.state import SourceFile, SourceSchema, SourceState
from lamella.snapshot.source.taking import Taken, take

__all__ = [
    "IDENTITY",
    "KIND",
    "PREFIX",
    "REFUSED",
    "VERSION",
    "Difference",
    "Evolution",
    "Reader",
    "SourceFile",
    "SourceSchema",
    "SourceState",
    "Taken",
    "difference",
    "evolution",
    "first_columns",
    "first_properties",
    "nullable_columns",
    "refuse_added",
    "refuse_columns",
    "refuse_properties",
    "require_path_columns",
    "source_of",
    "source_properties",
    "take",
]
