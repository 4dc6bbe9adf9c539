"""External tables: the source of their files, its current state, and the difference to what a table contains."""

from lamella.snapshot.source.evolution import Evolution, evolution, first_columns, first_properties, nullable_columns
from lamella.snapshot.source.path_values import require_path_columns
from lamella.snapshot.source.read import Reader, SourceBlocks, take
from lamella.snapshot.source.state import (
    IDENTITY,
    KIND,
    PREFIX,
    REFUSED,
    VERSION,
    Difference,
    SourceFile,
    SourceSchema,
    SourceState,
    difference,
    refuse_added,
    refuse_columns,
    refuse_properties,
    restored_properties,
    source_of,
    source_properties,
)

__all__ = [
    "IDENTITY",
    "KIND",
    "PREFIX",
    "REFUSED",
    "VERSION",
    "Difference",
    "Evolution",
    "Reader",
    "SourceBlocks",
    "SourceFile",
    "SourceSchema",
    "SourceState",
    "difference",
    "evolution",
    "first_columns",
    "first_properties",
    "nullable_columns",
    "refuse_added",
    "refuse_columns",
    "refuse_properties",
    "require_path_columns",
    "restored_properties",
    "source_of",
    "source_properties",
    "take",
]
