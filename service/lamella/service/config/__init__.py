"""Settings: what they are, where they come from, and whether a service would start with them."""
