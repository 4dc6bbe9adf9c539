"""How sharp pruning is: Lamella and its peers on the same files, beside an oracle that reads every row."""
