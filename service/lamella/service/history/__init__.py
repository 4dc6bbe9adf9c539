"""The snapshots of a table: reading, tags, changes between two of them, rollback."""
