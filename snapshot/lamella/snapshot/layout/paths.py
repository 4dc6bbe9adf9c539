"""Where the objects of a table are. These names are part of the format: readers of older tables rely on them.

::

    <warehouse>/<table id>/
        _ss/<snapshot id>_v2.json     snapshot manifest      _ss/<snapshot id>_v2.arrow   its companion
        _sl/<group id>_v2.json        manifest of a group    _sl/<group id>_v2.arrow      its companion
                                                             _sl/<group id>_v2.loc        its location index
        _sg/<segment id>_v1.json      segment manifest       _sg/<segment id>_v1.arrow    its companion
                                      _sg/<segment id>_v1.pages its page companion, when one was built
        _b/<block id>_v1.parquet      blocks that Lamella's jobs wrote
        _rf/<set id>_v1.set           registered files that left the table
        _ix/<part id>_v1.part         part of a skip index   _ix/<directory id>_v1.dir    where parts know which blocks
        _ts/<segment, group or snapshot id>_v1.hll   sketches of distinct values
        _tmp/<id>_v1.run, .part       rows and parts of indexes on their way, while a job runs
        _tmp/<id>_v1.blocks           blocks on their way to one commit, as JSON
        _iceberg/metadata/            the table as Iceberg, see :mod:`lamella.snapshot.iceberg.export_folder`
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from lamella.snapshot.layout.location import normal


def table_root(warehouse: str, table_id: str | UUID) -> str:
    """The folder of a table, as a location without a trailing slash; raises InvalidRequest for a bad warehouse."""
    return f"{normal(warehouse).rstrip('/')}/{table_id}"


class TableLayout(msgspec.Struct, frozen=True):
    """The objects below one table's folder (``root``, see :func:`table_root`). Ids are v7 UUIDs."""

    root: str

    def snapshot(self, snapshot_id: str | UUID) -> str:
        """A snapshot's manifest, as it is named today; a version 1 snapshot's ends in ``_v1.json``."""
        return f"{self.root}/_ss/{snapshot_id}_v2.json"

    def snapshot_companion(self, snapshot_id: str | UUID) -> str:
        """A snapshot's companion: one row a segment."""
        return f"{self.root}/_ss/{snapshot_id}_v2.arrow"

    def group(self, group_id: str | UUID) -> str:
        """A segment group's manifest."""
        return f"{self.root}/_sl/{group_id}_v2.json"

    def group_companion(self, group_id: str | UUID) -> str:
        """A group's companion: one row a segment."""
        return f"{self.root}/_sl/{group_id}_v2.arrow"

    def group_locations(self, group_id: str | UUID) -> str:
        """A group's location index: which blocks there are, by hash."""
        return f"{self.root}/_sl/{group_id}_v2.loc"

    def segment(self, segment_id: str | UUID) -> str:
        """A segment's manifest."""
        return f"{self.root}/_sg/{segment_id}_v1.json"

    def segment_companion(self, segment_id: str | UUID) -> str:
        """A segment's companion: one row a block."""
        return f"{self.root}/_sg/{segment_id}_v1.arrow"

    def sketches(self, owner_id: str | UUID) -> str:
        """The sketches of a segment and its blocks, or of a group or snapshot."""
        return f"{self.root}/_ts/{owner_id}_v1.hll"

    def index_part(self, part_id: str | UUID) -> str:
        """A part of a skip index."""
        return f"{self.root}/_ix/{part_id}_v1.part"

    def index_directory(self, directory_id: str | UUID) -> str:
        """A directory of a skip index."""
        return f"{self.root}/_ix/{directory_id}_v1.dir"

    def replaced_files(self, set_id: str | UUID) -> str:
        """Files that were registered and left the table."""
        return f"{self.root}/_rf/{set_id}_v1.set"

    def block(self, block_id: str | UUID) -> str:
        """A block that a job of Lamella's writes."""
        return f"{self.root}/_b/{block_id}_v1.parquet"

    @property
    def scratch(self) -> str:
        """The folder of what is needed only while a job runs."""
        return f"{self.root}/_tmp"

    def block_list(self, list_id: str | UUID) -> str:
        """Blocks on their way to a commit."""
        return f"{self.scratch}/{list_id}_v1.blocks"

    @property
    def iceberg(self) -> str:
        """The folder of the table's export as an Iceberg table."""
        return f"{self.root}/_iceberg"

    @property
    def blocks(self) -> str:
        """The folder of such blocks."""
        return f"{self.root}/_b"
