"""Scalar functions: compute zone maps of their results from the zone maps of their arguments.

The result zone maps contain every result that a row can give. A monotone function maps the bounds; the others return
what little is certain. Where a row may fail (an overflow, a cast out of range) everything is left open, since Spark's
settings decide between an error, a null and a wrapped number.
"""

from lamella.snapshot.function.base import Function
from lamella.snapshot.function.choice import Coalesce

__all__ = ["Coalesce", "Function"]
