"""Lamella on Spark beside other tables on Spark: the same files, the same session, the same queries."""
