"""Advice: estimates how much of a table look-ups skip, and what an index or another layout would change.

Nothing here changes how rows are read. Answers from manifests alone are expectations for look-ups of single values
(``=``, or one value of IN), with all distinct values equally likely.
"""
