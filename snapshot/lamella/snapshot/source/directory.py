"""A folder or glob as a source: what the store lists is what there is."""

from __future__ import annotations

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout import Places, Store
from lamella.snapshot.layout.location import Location, parse
from lamella.snapshot.layout.selection import Glob, glob_root, has_magic, is_data_file, refuse_other_formats
from lamella.snapshot.source.constants import path_columns
from lamella.snapshot.source.state import SourceFile, SourceState, outside
from lamella.snapshot.wire import ExternalSource


def read_directory(store: Store, source: ExternalSource, places: Places) -> SourceState:
    """The data files of a folder, or of the files and folders that a glob matches (as ``Store.expand`` has them).

    Raises:
        LocationRefused: it does not lie in ``places``.
        OtherTableFormat: it is another format's table, not all of whose files count.
        StoreError: storage failed.
    """
    places.require_all_below(source.location or "")
    at = parse(source.location or "")
    folder = at.path.rstrip("/") + "/"
    listed = list(store.list(str(at)))
    root = folder
    if listed or not has_magic(at.path):
        chosen = [found for found in listed if is_data_file(parse(found.location).path[len(folder) :])]
    else:
        root = glob_root(at.path)
        if at.scheme == "s3" and "/" not in root:
            raise InvalidRequest(f"a bucket's name cannot be a glob: {source.location!r}", location=source.location)
        glob = Glob(at.path)
        listed = list(store.list(str(Location(at.scheme, root))))
        chosen = [found for found in listed if glob.selects(parse(found.location).path)]
    everything = [found.location for found in listed]
    refuse_other_formats(everything, everything, "; a directory source takes plain files only")
    ignored = source.path_columns == "ignore"
    return SourceState(
        files=tuple(
            SourceFile(
                location=found.location,
                size_bytes=found.size_bytes,
                content_id=found.content_id,
                folders=() if ignored else path_columns(parse(found.location).path[len(root) :]),
            )
            for found in chosen
            if places.allows(found.location)
        ),
        refused=outside(places, [found.location for found in chosen]),
        above=() if ignored else path_columns(root),
    )
