"""Helpers under the names that Celery gives them."""

import uuid as _uuid


def uuid() -> str:
    """A random id for a task."""
    return str(_uuid.uuid4())


__all__ = ["uuid"]
