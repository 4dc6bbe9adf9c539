"""Pruning sharpness: Lamella and its peers on the same files, compared with an oracle that reads every row."""
