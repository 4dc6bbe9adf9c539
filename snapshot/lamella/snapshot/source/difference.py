"""What came, went and changed between a table's blocks and its source's files."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamella.snapshot.manifest.block_key import Identified
from lamella.snapshot.source.state import SourceFile


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Files that the table lacks, locations that the source has no more, files that are others than the table's."""

    added: tuple[SourceFile, ...]
    removed: tuple[str, ...]
    replaced: tuple[SourceFile, ...]
    unchanged: tuple[SourceFile, ...]


def difference(held: Iterable[Identified], files: Iterable[SourceFile]) -> Difference:
    """The difference, as far as sizes and content ids tell; what a source does not give is taken for the same."""
    blocks = {block.location: block for block in held}
    added, replaced, unchanged = [], [], []
    for file in files:
        block = blocks.pop(file.location, None)
        if block is None:
            added.append(file)
        elif is_other(block, file):
            replaced.append(file)
        else:
            unchanged.append(file)
    return Difference(
        added=tuple(added), removed=tuple(sorted(blocks)), replaced=tuple(replaced), unchanged=tuple(unchanged)
    )


def is_other(block: Identified, file: SourceFile) -> bool:
    """Whether the source's file is certainly not the one that a block was made of."""
    if file.size_bytes is not None and file.size_bytes != block.file_size:
        return True
    return file.content_id is not None and file.content_id != block.content_id
