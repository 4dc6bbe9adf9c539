"""Import of other catalogs' tables as external tables. Hive Metastore, Glue, Unity Catalog and Iceberg catalogs."""
