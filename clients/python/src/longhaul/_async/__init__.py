"""The client for asyncio. `python3 clients/generate` derives the package `_sync` from this one."""
