"""Settings: their definitions, their sources, and checks of a configuration before the start."""
