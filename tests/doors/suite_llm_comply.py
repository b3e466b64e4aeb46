"""llm-comply, by its own command, over each format: every rule that applies passes."""

import json
import subprocess
import sys
from pathlib import Path

from suite import ARGS, check, main

PROGRAM = Path(sys.executable).parent / "llm-comply"


def comply(form, model, *more):
    """Runs every rule of a format."""
    command = [PROGRAM, "run", "--format", form, "-u", f"{ARGS.url}/v1", "-k", ARGS.key, "-m", model, "--json", *more]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout.strip(), run.stderr
    report = json.loads(run.stdout)
    results = report["results"] if isinstance(report, dict) else report
    wrong = [result for result in results if result["status"] not in ("passed", "skipped")]
    assert len(results) >= 9 and run.returncode == 0 and not wrong, json.dumps(wrong, indent=1)


# The names of the models switch rules on that are for models that reason.
@check
def open_responses_is_kept():
    for model in (ARGS.agent, ARGS.model, "custom/gpt-5-stub"):
        comply("open-responses", model)


@check
def openai_chat_is_kept():
    for model in (ARGS.agent, ARGS.model, "custom/gpt-5-stub"):
        comply("openai-chat", model)


@check
def anthropic_is_kept():
    for model in (ARGS.agent, ARGS.model, "custom/claude-sonnet-4-stub"):
        comply("anthropic", model, "--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01")


if __name__ == "__main__":
    main()
