"""Spark's own file index, filled with blocks that we name: nothing is listed, no file is touched.

``ParquetScanBuilder`` wants a ``PartitioningAwareFileIndex``, an abstract class, which a proxy cannot be. An
``InMemoryFileIndex`` takes its listing from a cache when it is there; so it gets a cache of its own, of unlimited
size, that holds one folder with our files. (Spark's shared cache would do, but it can be switched off by
configuration and evicts.) Whatever Spark then shows is counted: it must never have fewer files than we named.
"""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.gateway import DATASOURCES, Gateway
from lamella.client.spark.hadoop_path import refuse_hidden
from lamella.client.spark.lake import Kept
from lamella.client.spark.statuses import file_statuses
from lamella.snapshot.errors import LamellaError

#: More than any listing weighs, and small enough for Guava to add a few of them.
UNLIMITED_BYTES: Final = 1 << 60


def file_index(gateway: Gateway, kept: Kept, digest: str, schema: Any, *, cache_bytes: int = UNLIMITED_BYTES) -> Any:
    """An ``InMemoryFileIndex`` of exactly these blocks; ``schema`` is the ``StructType`` of the data.

    Raises:
        LamellaError: Spark's index holds other files than it was given.
    """
    refuse_hidden(kept.locations)
    # Never looked at. It differs with the content, since Spark takes two indexes of one root for equal.
    root = gateway.path(f"file:///lamella/{digest}")
    cache = gateway.java_class(DATASOURCES + "SharedInMemoryCache")(cache_bytes, -1).createForNewClient()
    cache.putLeafFiles(root, file_statuses(gateway, kept.files()))
    index = gateway.java_class(DATASOURCES + "InMemoryFileIndex")(
        gateway.session,
        gateway.seq([root]),
        gateway.shared("recursive", lambda: gateway.scala_map({"recursiveFileLookup": "true"})),
        gateway.some(schema),
        cache,
        gateway.shared("no partitions", lambda: gateway.some(_no_partitions(gateway))),
        gateway.none,
    )
    found = index.allFiles().size()
    if found != len(kept.locations):
        raise LamellaError(f"Spark's file index lost blocks: it holds {found} of {len(kept.locations)}")
    return index


def _no_partitions(gateway: Gateway) -> Any:
    return gateway.scala_object(DATASOURCES + "PartitionSpec").emptySpec()
