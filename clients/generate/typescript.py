def files(document): return {}
