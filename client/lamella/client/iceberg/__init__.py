"""Export of tables as Iceberg: the job and its command. No other package depends on it."""
