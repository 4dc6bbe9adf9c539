"""What the pages need, by the part of the documentation that they stand in. Importing this registers them."""

from docs.scenes import access, data_access, formats, how_to, operating, reading, spark, start, upkeep

__all__ = ["access", "data_access", "formats", "how_to", "operating", "reading", "spark", "start", "upkeep"]
