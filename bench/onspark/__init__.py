"""Lamella on Spark compared with other tables on Spark: the same files, session and queries."""
