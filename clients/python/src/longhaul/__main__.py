"""`python -m longhaul module:app`: the command `longhaul-worker`."""

import sys

try:
    from longhaul.worker.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("pydantic", "pydantic_core"):
        raise
    sys.exit(f"longhaul-worker needs the package {error.name}: pip install 'longhaul[worker]'")

if __name__ == "__main__":
    sys.exit(main())
