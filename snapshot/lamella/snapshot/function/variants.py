"""variant_get: what is known of the values at a path of a variant, if the path is a shredded field."""

from __future__ import annotations

import msgspec

from lamella.snapshot.columnar.zones import Zones
from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.function.base import Vector


class ShreddedField(msgspec.Struct, frozen=True, gc=False):
    """The values of a shredded field, in its type; null where a variant lacks it, or has a variant null there.

    A block has statistics of the field only if all its values are of the type (see
    ``lamella.snapshot.parquet.shredded_stats``), so there is no value that a cast could refuse.
    """

    def zones(self, *arguments: Zones) -> Zones:
        """Returns the zone maps of the field."""
        (zones,) = arguments
        return zones

    def rows(self, *_arguments: Vector) -> Vector:
        """Raises FilterNotEvaluable: rows are read as whole variants, which are not evaluated."""
        raise FilterNotEvaluable("paths of variants are not evaluated row by row")
