"""Advice: how much of a table look-ups skip, and what an index or another layout would change, beforehand.

No answer about rows depends on it. What is made of manifests alone are expectations: of look-ups of single values
(``=``, or one value of a list), each different value as likely as the others.

Nothing here reads anything, and no answer about rows depends on it. What is made of manifests alone are expectations:
of look-ups of single values (``=``, or one value of a list), each different value as likely as the others.
"""
