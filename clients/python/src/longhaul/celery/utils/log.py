"""Loggers of tasks."""

import logging


def get_logger(name: str) -> logging.Logger:
    """The logger of this name."""
    return logging.getLogger(name)


def get_task_logger(name: str) -> logging.Logger:
    """The logger of a module of tasks."""
    return logging.getLogger(name)
