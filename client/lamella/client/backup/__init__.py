"""Commands that export, import and verify the service's catalog. No other package depends on it."""
