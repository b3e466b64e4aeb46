"""Apps by their place, for `longhaul-worker longhaul.celery.load:tasks:app`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .app import Celery
from .exceptions import ImproperlyConfigured


def find_app(name: str) -> Celery:
    """The app of `module:attribute`, or of a module with the attribute `app` or `celery`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    if not attribute:
        attribute = next((one for one in ("app", "celery") if isinstance(getattr(module, one, None), Celery)), "app")
    app = getattr(module, attribute, None)
    if not isinstance(app, Celery):
        raise ImproperlyConfigured(f"{module_name} has no longhaul.celery.Celery named {attribute!r}")
    return app


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return find_app(name).longhaul_app
    except (ImproperlyConfigured, ModuleNotFoundError) as error:
        raise ImportError(str(error)) from error
