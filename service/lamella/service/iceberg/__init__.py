"""The Iceberg REST face."""
