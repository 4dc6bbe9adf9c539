"""The Delta Sharing face."""
