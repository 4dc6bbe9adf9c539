"""External tables: tables that follow the files of a source."""
