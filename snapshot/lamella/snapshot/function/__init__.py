"""Scalar functions: what is known of their results when zone maps are known of their arguments.

Each function maps the zone maps of its arguments to zone maps that hold every result that a row can give. A monotone
function moves the bounds; the others say what little is certain. What may fail (an overflow, a cast out of range) is
no result: there everything is left open, since Spark's settings decide between an error, a null and a wrapped number.
"""

from lamella.snapshot.function.base import Function
from lamella.snapshot.function.numeric import Coalesce

__all__ = ["Coalesce", "Function"]
