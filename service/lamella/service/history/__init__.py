"""The snapshots of a table: reading one, tags, changes between two, rollback."""
