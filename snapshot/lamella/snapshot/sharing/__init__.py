"""Lamella's tables in the terms of the Delta Sharing protocol: hints, schemas, files and the lines of answers."""
