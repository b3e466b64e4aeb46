"""The clients of the API: `Client`, and `AsyncClient` with the same methods."""

from ._async.client import AsyncClient
from ._sync.client import Client
from .params import Submit as SubmitRequest

__all__ = ["AsyncClient", "Client", "SubmitRequest"]
