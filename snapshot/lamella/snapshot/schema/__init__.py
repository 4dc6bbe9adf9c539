"""Columns by id, their logical types and order."""

from lamella.snapshot.schema.column import Check, Column, Leaf, Schema, path_parts, quoted, quoted_path
from lamella.snapshot.schema.types import DataType, Order, parse_type, widens

__all__ = [
    "Check",
    "Column",
    "DataType",
    "Leaf",
    "Order",
    "Schema",
    "parse_type",
    "path_parts",
    "quoted",
    "quoted_path",
    "widens",
]
