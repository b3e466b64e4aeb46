# Written by `python3 clients/generate` from docs/openapi.json: do not edit.
"""The client for code without an event loop, derived from `_async`."""
