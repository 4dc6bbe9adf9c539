"""Statistics sidecars: the zone maps of one layer as arrays, built from manifests and stored as Arrow IPC."""

from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.sidecar import JoinedSidecar, Sidecar, build_block_arrays, build_blocks, build_segments
from lamella.snapshot.columnar.zones import Zones, zones_of

__all__ = [
    "BytesKeys",
    "JoinedSidecar",
    "Keys",
    "NumberKeys",
    "Sidecar",
    "WideKeys",
    "Zones",
    "build_block_arrays",
    "build_blocks",
    "build_segments",
    "zones_of",
]
