"""Lamella's tables in the terms of the Iceberg REST specification: filters, types, metadata, scan tasks."""
