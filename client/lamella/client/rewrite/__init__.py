"""Writing blocks: rows sorted, cut and written with exact statistics, on one machine or on many.

Nothing here knows Spark. What runs elsewhere is a value that can be called (:mod:`.stages`), handed to an engine
(:mod:`.engine`) with its tasks.
"""
