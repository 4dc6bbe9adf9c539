"""External tables: brought up to date with the files of their source."""
