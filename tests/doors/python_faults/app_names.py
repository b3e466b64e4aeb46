"""Steps of the functions in `app.py`, by their effects."""

UNKNOWN = "unknown"
"""Stands in an output for a side effect that was begun by an attempt that died."""
EFFECTS = {
    "faults.three": {"a": "read_only", "b": "idempotent", "c": "side_effect"},
    "faults.blocking": {"a": "read_only", "b": "idempotent", "c": "side_effect"},
    "faults.parallel": {
        "a": "read_only",
        "b": "idempotent",
        "c": "side_effect",
        "d": "read_only",
        "e": "idempotent",
    },
    "faults.wait": {"a": "read_only", "b": "idempotent", "c": "side_effect"},
    "faults.leaf": {"a": "idempotent", "b": "side_effect"},
    "faults.tree": {"a": "idempotent", "b": "side_effect"},
    "faults.gate": {"a": "idempotent", "b": "side_effect"},
    "faults.flaky": {"a": "idempotent", "b": "side_effect", "c": "read_only"},
}
