"""Writing blocks: sort rows, cut them and write them with exact statistics, on one machine or many.

Independent of Spark. Work that runs elsewhere is a picklable callable (:mod:`.stages`), which an engine
(:mod:`.engine`) runs on each task.
"""
