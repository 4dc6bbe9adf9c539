"""Features of tables that a reader must support to return the right rows, and a writer to add only allowed ones.

A manifest lists what it requires; a release that does not know one of the names does not read the manifest. A request
for blocks declares what the reader supports; one that lacks a required feature gets an error and never the files. A
commit that adds blocks declares what its writer supports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lamella.snapshot.errors import ReaderFeatureMissing, WriterFeatureMissing

#: The reader supplies the values of :attr:`lamella.snapshot.manifest.Block.constants`.
CONSTANTS: Final = "constants"
#: The reader leaves out the rows of :attr:`lamella.snapshot.manifest.Block.deletes`.
DELETES: Final = "deletes"
#: The blocks are not those of the table's current version, which this release cannot read. No reader supports it.
UNREAD_SOURCE: Final = "unread_source"
#: The features that this release reads, and that its own readers support.
FEATURES: Final = (CONSTANTS, DELETES)
#: The writer checks new rows by the constraints of the schema, and stores text of a length that it gives.
CONSTRAINTS: Final = "constraints"
#: The features of writers that this release knows, and that its own writers support.
WRITER_FEATURES: Final = (CONSTRAINTS,)
#: Large sidecars are in parts, of which a reference records the tail.
SIDECAR_PARTS: Final = "sidecar_parts"
#: The features of manifests and sidecars that this release reads; readers and writers of blocks need not know them.
FORMAT_FEATURES: Final = (SIDECAR_PARTS,)
#: The features of manifests that this release reads.
KNOWN_FEATURES: Final = (*FEATURES, UNREAD_SOURCE, *WRITER_FEATURES, *FORMAT_FEATURES)

_MEANING: Final = {
    CONSTANTS: "columns whose values are not in the files",
    DELETES: "deleted rows that are still in the files",
}


def require_features(required: Sequence[str], declared: Iterable[str]) -> None:
    """Raise ReaderFeatureMissing unless a reader declared all the features that a snapshot requires."""
    if not required:
        return
    missing = sorted(set(required).difference(declared))
    if UNREAD_SOURCE in required:
        raise ReaderFeatureMissing(
            "an Iceberg client has committed what Lamella cannot read, so its current rows are known to Iceberg clients"
            " only: the property lamella.source.unread of the table says why",
            features=[UNREAD_SOURCE],
        )
    if missing:
        meanings = ", ".join(f"{name} ({_MEANING[name]})" if name in _MEANING else name for name in missing)
        raise ReaderFeatureMissing(
            f"the table has blocks that need {meanings}: scans and Spark read them; a program that reads the files by"
            f" itself and applies them declares it, reader_features={missing}",
            features=missing,
        )


def require_writer_feature(declared: Iterable[str]) -> None:
    """Raise WriterFeatureMissing unless a writer declared that it checks constraints."""
    if CONSTRAINTS not in declared:
        raise WriterFeatureMissing(
            "the table has constraints or text of limited length, and nothing says that the rows satisfy them: write"
            " the rows with a release of Lamella that checks constraints; a writer that checked each row declares"
            " constraints in writer_features",
            features=[CONSTRAINTS],
        )
