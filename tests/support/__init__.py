"""What several test modules share: importable in tests as `support`."""
