"""What the pages need, by the part of the documentation that they stand in. Importing this registers them."""

from docs.scenes import formats, operating, reading, spark, upkeep

__all__ = ["formats", "operating", "reading", "spark", "upkeep"]
