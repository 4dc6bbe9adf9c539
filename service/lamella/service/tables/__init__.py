"""Namespaces, tables and their schemas."""
