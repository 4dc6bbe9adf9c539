def run(*a, **k): return 0
