# Written by `python3 clients/generate` from docs/openapi.json: do not edit.
"""The client without an event loop, derived from `_async`."""
