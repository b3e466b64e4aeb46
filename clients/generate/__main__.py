"""Writes the generated files of both clients: `python3 clients/generate`; with `--check` it compares them only.

Needs Python 3.10 and no package.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import python
import typescript
from document import CLIENTS, Document, Mistake


def main() -> int:
    is_check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not is_check:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        document = Document()
        check_hand_written(document)
        files = {**python.files(document), **typescript.files(document)}
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 1
    other = [name for name, text in files.items() if not is_file(CLIENTS / name, text)]
    if is_check:
        for name in other:
            print(f"clients/{name} is not what `python3 clients/generate` writes", file=sys.stderr)
        return 1 if other else 0
    for name in other:
        (CLIENTS / name).parent.mkdir(parents=True, exist_ok=True)
        (CLIENTS / name).write_text(files[name])
        print(f"wrote clients/{name}")
    return 0


def check_hand_written(document: Document) -> None:
    """Fails if a method that the list calls hand-written is missing in a client."""
    for operation in document.operations:
        if not operation.is_by_hand:
            continue
        for name in (python.STREAMS, typescript.STREAMS):
            method = re.compile(rf"^ +(?:async |def |\*)*{operation.method}\(", re.MULTILINE)
            if not method.search((CLIENTS / name).read_text()):
                raise Mistake(f"clients/{name} has no method {operation.method} for {operation.id}")


def is_file(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


sys.exit(main())
