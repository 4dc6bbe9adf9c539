"""Export of tables as Iceberg: the job and its command. It can be taken out."""
