"""Makes ``spark.read.format("lamella")`` work: Spark looks for ``DefaultSource`` in modules named ``pyspark_...``."""

from lamella.client.spark.datasource import LamellaDataSource as DefaultSource

__all__ = ["DefaultSource"]
