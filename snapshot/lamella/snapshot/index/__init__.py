"""Skip indexes: what is known of blocks beyond minima and maxima, built beside the data and believed only where proven.

An index belongs to a table and is of one *kind* (:mod:`.kind`) over one term, a column or an expression. What it knows
of some blocks is a *part*, one object (:mod:`.part`), and says by block what it is about, so it stays true whatever
becomes of other blocks. Blocks that no part knows are kept.
"""

from lamella.snapshot.index.kind import Builder, Claim, Kind, Probe
from lamella.snapshot.index.part import Fetch, Part, PartRef, Section, pack
from lamella.snapshot.index.registry import kind_named, kinds

__all__ = [
    "Builder",
    "Claim",
    "Fetch",
    "Kind",
    "Part",
    "PartRef",
    "Probe",
    "Section",
    "kind_named",
    "kinds",
    "pack",
]
