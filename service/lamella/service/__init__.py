"""The metadata service: thin HTTP routes over the snapshot core, and the state behind them."""
