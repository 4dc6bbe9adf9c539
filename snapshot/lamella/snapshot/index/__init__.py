"""Skip indexes: data about blocks beyond minima and maxima, stored next to the table and trusted only where proven.

An index belongs to a table and has one *kind* (:mod:`.kind`) over one term, a column or an expression. A *part* is one
object with the data of some blocks (:mod:`.part`). Parts are keyed by block, so they stay valid whatever happens to
other blocks. Blocks without a part are never skipped.
"""

from lamella.snapshot.index.kind import Builder, Kind, PossibleOutcomes, Probe
from lamella.snapshot.index.part import Fetch, Part, PartRef, Section, pack
from lamella.snapshot.index.registry import kind_named, kinds

__all__ = [
    "Builder",
    "Fetch",
    "Kind",
    "Part",
    "PartRef",
    "PossibleOutcomes",
    "Probe",
    "Section",
    "kind_named",
    "kinds",
    "pack",
]
