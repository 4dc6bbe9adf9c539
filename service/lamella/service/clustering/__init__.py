"""Clustering of tables: cluster keys, clustering metrics, and the plans of rewrites."""
