"""The bars: what the API and the database say of every execution, compared with what the counting server saw."""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .app_names import EFFECTS, UNKNOWN
from .counter import Call
from .faults import Fault, Fleet
from .load import Client, Load, Refused

LEASE_SECONDS = 6.0
BACK_SECONDS = 10.0
CLAIM_SECONDS = 1.0
"""Longest claim: it takes its time before it looks for executions, so that it may find one that was parked since."""
WOKEN_SECONDS = 1.0
"""Time after SIGCONT in which a worker sends the calls that it was about to send."""
WOKEN_CALLS = 3

QUERIES = {
    "executions": """
        select id, parent_id, retry_of, status, failure_code, worker_id, wait_reason, event_seq, attempt,
            coalesce(definition_key, '') as definition, (metadata->>'submit')::int as submit
        from executions""",
    "attempts": """
        select execution_id, number, worker_id, outcome, wait_reason, failure_code,
            extract(epoch from started_at)::float8 as started, extract(epoch from ended_at)::float8 as ended
        from attempts order by execution_id, number""",
    "steps": """
        select execution_id, seq, state, encode(key, 'hex') as key, name,
            extract(epoch from finished_at)::float8 as finished
        from steps order by execution_id, seq""",
    "events": "select execution_id, seq, kind from events order by execution_id, seq",
    "workers": "select id, pid, extract(epoch from dead_at)::float8 as dead from workers",
    "keys": "select key, execution_id from idempotency_keys where key like 'submit-%'",
    "left": """
        select (select count(*) from executions where worker_id is not null) as "executions that are held",
            (select count(*) from parked) as "executions that are parked",
            (select count(*) from deadlines) as "deadlines",
            (select count(*) from human_requests where state = 'waiting') as "open requests",
            (select count(*) from child_waits) as "waits for children",
            (select count(*) from ending_parents) as "parents that end",
            (select count(*) from ends) as "ends without their reactions" """,
}


@dataclass
class Bars:
    """What was found, by bar."""

    found: dict[str, list[str]] = field(default_factory=dict)
    apart: dict[str, Any] = field(default_factory=dict)
    """Numbers that are no bars."""

    def add(self, bar: str, findings: Iterator[str] | list[str]) -> None:
        """Adds findings to a bar; a bar without any holds."""
        self.found.setdefault(bar, []).extend(findings)

    @property
    def hold(self) -> bool:
        """Whether all bars hold."""
        return not any(self.found.values())


class Audit:
    """Computes the bars of one run."""

    def __init__(self, fleet: Fleet, load: Load, calls: Sequence[Call], caller: Client) -> None:
        self._fleet = fleet
        self._load = load
        self._calls = list(calls)
        self._caller = caller
        self._rows = {name: fleet.database.rows(query) for name, query in QUERIES.items()}
        self._executions = {row["id"]: row for row in self._rows["executions"]}
        self._attempts: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in self._rows["attempts"]:
            self._attempts[row["execution_id"]][row["number"]] = row
        self._steps = {(row["execution_id"], row["key"]): row for row in self._rows["steps"]}
        self._pids = {row["id"]: row["pid"] for row in self._rows["workers"]}

    def bars(self) -> Bars:
        """All bars."""
        bars = Bars()
        bars.add("lost submits", self._lost())
        bars.add("submits refused or unanswered", self._unanswered())
        bars.add("idempotency keys with two executions", self._doubled())
        bars.add("stuck executions", self._stuck())
        bars.add("FAILED executions", self._failed())
        bars.add("recorded steps repeated", self._recorded_repeated(bars))
        bars.add("side effects repeated", self._effects_repeated())
        bars.add("calls repeated without a cause", self._repeated_without_cause(bars))
        bars.add("outputs wrong", self._outputs(bars))
        bars.add("histories broken", self._histories())
        bars.add("leases overlap or are missing", self._leases())
        bars.add("ends by dead workers accepted", self._stale_ends())
        bars.add("leases lost by a drain", self._lost_by_drains())
        bars.add("left over", self._leftovers())
        bars.add("processes and faults", self._processes())
        bars.add("back later than 10 s (p99)", self._back(bars))
        bars.apart["workers declared dead that ran"] = list(self._dead_that_ran())
        bars.apart["executions"] = len(self._executions)
        bars.apart["submits"] = len(self._load.submits)
        bars.apart["leases"] = len(self._rows["attempts"])
        bars.apart["leases lost"] = sum(row["outcome"] == "lost" for row in self._rows["attempts"])
        bars.apart["calls"] = len(self._calls)
        bars.apart["answers lost by the counting server"] = sum(call.is_lost for call in self._calls)
        bars.apart["answers cut by the proxy"] = dict(self._fleet.proxy.cuts)
        bars.apart["faults"] = dict(Counts(fault.kind for fault in self._fleet.faults))
        return bars

    # Submits.

    def _lost(self) -> Iterator[str]:
        for submit in self._load.submits:
            for id in submit.ids - set(self._executions):
                yield f"submit {submit.number} was answered with {id}, which is not stored"

    def _unanswered(self) -> Iterator[str]:
        for submit in self._load.submits:
            if submit.error or not submit.ids:
                yield f"submit {submit.number}: {submit.error or 'no answer'}"
        yield from self._load.errors

    def _doubled(self) -> Iterator[str]:
        of_submit: dict[int, set[str]] = defaultdict(set)
        for id, row in self._executions.items():
            # A retry is an execution of its own, and is made of a FAILED one, which another bar counts.
            if row["submit"] is not None and row["parent_id"] is None and row["retry_of"] is None:
                of_submit[row["submit"]].add(id)
        for row in self._rows["keys"]:
            of_submit[int(row["key"].removeprefix("submit-"))].add(row["execution_id"])
        for submit in self._load.submits:
            ids = of_submit[submit.number] | submit.ids
            if len(ids) > 1:
                yield f"submit {submit.number} has the executions {', '.join(sorted(ids))}"

    # States.

    def _stuck(self) -> Iterator[str]:
        for id, row in self._executions.items():
            if row["status"] not in ("FINISHED", "FAILED"):
                yield f"{id} ({row['definition']}) is {row['status']}, waits for {row['wait_reason']}"

    def _failed(self) -> Iterator[str]:
        for id, row in self._executions.items():
            if row["status"] == "FAILED":
                last = self._attempts[id].get(row["attempt"], {})
                yield f"{id} ({row['definition']}) failed: {row['failure_code']} (attempt {row['attempt']}, {last})"

    # Calls.

    def _recorded_repeated(self, bars: Bars) -> Iterator[str]:
        woken: Counts[int] = Counts()
        for call in self._calls:
            step = self._step_of(call)
            if step is None or step["finished"] is None or call.at <= step["finished"]:
                continue
            # A stopped process cannot know that it was stopped between its last look at the lease and the call.
            pause = self._pause_of(call)
            if pause is not None and call.effect != "side_effect":
                woken[pause] += 1
                if woken[pause] <= WOKEN_CALLS:
                    continue
            late = call.at - step["finished"]
            yield f"{call.execution} step {call.step} was called {late:.3f} s after its result: {shown(call)}"
        bars.apart["calls of workers that woke from a pause"] = sum(woken.values())

    def _effects_repeated(self) -> Iterator[str]:
        calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in self._calls:
            calls[call.execution, call.step].append(call)
        for (execution, step), some in calls.items():
            effect = some[0].effect
            if effect == "side_effect" and len(some) > 1:
                yield f"{execution} step {step} was called {len(some)} times: {'; '.join(map(shown, some))}"
            if effect == "idempotent" and len({call.key for call in some}) > 1:
                yield f"{execution} step {step} was called under two keys: {'; '.join(map(shown, some))}"

    def _repeated_without_cause(self, bars: Bars) -> Iterator[str]:
        before: dict[tuple[str, str], Call] = {}
        causes: Counts[str] = Counts()
        for call in self._calls:
            earlier = before.get((call.execution, call.step))
            before[call.execution, call.step] = call
            if earlier is None or call.effect in ("none", "side_effect"):
                continue
            outcome = self._attempts[call.execution].get(earlier.attempt, {}).get("outcome")
            if earlier.is_lost:
                causes["answer lost"] += 1
            elif call.attempt < earlier.attempt and self._pause_of(call) is not None:
                causes["woke from a pause"] += 1
            elif outcome == "lost" and earlier.attempt != call.attempt:
                causes["lease lost"] += 1
            else:
                yield (
                    f"{call.execution} step {call.step}: {shown(earlier)}, then {shown(call)}; "
                    f"the attempt of the first is {outcome}"
                )
        bars.apart["calls repeated, whose results were not recorded"] = dict(causes)

    def _pause_of(self, call: Call) -> int | None:
        """Number of the fault from which the call's worker woke; None if it did not."""
        faults = enumerate(self._fleet.faults)
        return next((i for i, fault in faults if fault.kind == "pause-python" and is_woken(fault, call)), None)

    def _step_of(self, call: Call) -> dict[str, Any] | None:
        return self._steps.get((call.execution, call.key.rpartition(":")[2])) if call.key else None

    # Outputs.

    def _outputs(self, bars: Bars) -> Iterator[str]:
        runs = {call.run: call for call in self._calls}
        children: dict[str, set[str]] = defaultdict(set)
        for id, row in self._executions.items():
            if row["parent_id"] is not None:
                children[row["parent_id"]].add(id)
        unknown = 0
        for submit in self._load.submits:
            for id in submit.ids & set(self._executions):
                if self._executions[id]["status"] != "FINISHED":
                    continue
                try:
                    output = self._caller.request("GET", f"/v1/executions/{id}")["output"]
                except (Refused, TimeoutError) as error:
                    yield f"{id}: {error}"
                    continue
                if submit.what == "agent":
                    if f"repeat {submit.number}" not in str(output):
                        yield f"{id} (agent) has the output {output}"
                    continue
                wrong, missing = self._check(submit.what, submit.number, id, output, runs)
                unknown += missing
                if submit.what == "faults.tree" and not wrong:
                    wrong = check_tree(output, children[id])
                    for part, child in enumerate(output["children"]):
                        more, missing = self._check("faults.leaf", submit.number, child, output["parts"][part], runs)
                        unknown += missing
                        wrong = wrong or more
                if wrong:
                    yield f"{id} ({submit.what}): {wrong}: {output}"
        bars.apart["side effects with an unknown outcome"] = unknown

    def _check(self, what: str, number: int, execution: str, output: Any, runs: dict[str, Call]) -> tuple[str, int]:
        """Reason for which an output is wrong, and the number of side effects with an unknown outcome in it."""
        if not isinstance(output, dict) or output.get("number") != number:
            return "it is not of this input", 0
        if set(output["runs"]) != set(EFFECTS[what]):
            return "its steps are not those of the function", 0
        unknown = 0
        for step, run in output["runs"].items():
            if run == UNKNOWN and EFFECTS[what][step] == "side_effect":
                unknown += 1
                cause = self._cause_of_unknown(execution, step)
                if cause:
                    return cause, unknown
                continue
            call = runs.get(run)
            if call is None or (call.execution, call.step) != (execution, step):
                return f"run {run} is not one of step {step}", unknown
        if what == "faults.wait" and output["payload"] != {"number": number}:
            return "its signal is wrong", unknown
        if what == "faults.gate" and output["approved"] != {"number": number}:
            return "its approval is wrong", unknown
        return "", unknown

    def _cause_of_unknown(self, execution: str, step: str) -> str:
        """Empty if the effect's answer, or the lease of an attempt, was lost."""
        if any(call.is_lost for call in self._calls if (call.execution, call.step) == (execution, step)):
            return ""
        if any(row["outcome"] == "lost" for row in self._attempts[execution].values()):
            return ""
        return f"step {step} has an unknown outcome, although neither an answer nor a lease was lost"

    # Histories.

    def _histories(self) -> Iterator[str]:
        events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows["events"]:
            events[row["execution_id"]].append(row)
        for id, execution in self._executions.items():
            some = events[id]
            if [row["seq"] for row in some] != list(range(1, execution["event_seq"] + 1)):
                yield f"{id} has gaps in the numbers of its events"
            ends = [place for place, row in enumerate(some, 1) if row["kind"] in ("finished", "failed")]
            if execution["status"] in ("FINISHED", "FAILED") and ends != [len(some)]:
                yield f"{id} has its ends at {ends} of {len(some)} events"
        seqs: dict[str, list[int]] = defaultdict(list)
        for row in self._rows["steps"]:
            seqs[row["execution_id"]].append(row["seq"])
        for id, numbers in seqs.items():
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"{id} has gaps in the numbers of its steps"

    def _leases(self) -> Iterator[str]:
        for id, execution in self._executions.items():
            attempts = self._attempts[id]
            if sorted(attempts) != list(range(1, execution["attempt"] + 1)) and execution["worker_id"] is None:
                yield f"{id} has the attempts {sorted(attempts)} of {execution['attempt']}"
            for number in attempts:
                after = attempts.get(number + 1)
                if after is not None and after["started"] < attempts[number]["ended"] - CLAIM_SECONDS:
                    yield f"{id} attempt {number + 1} began before the end of the one before"

    def _stale_ends(self) -> Iterator[str]:
        dead = {row["id"]: row["dead"] for row in self._rows["workers"]}
        for row in self._rows["attempts"]:
            if row["worker_id"] not in dead:
                yield f"{row['execution_id']} attempt {row['number']} was of a worker that is not known"
                continue
            died = dead[row["worker_id"]]
            if row["outcome"] != "lost" and died is not None and row["ended"] > died:
                yield f"{row['execution_id']} attempt {row['number']} ended as {row['outcome']} by a dead worker"

    def _lost_by_drains(self) -> Iterator[str]:
        drains = [fault for fault in self._fleet.faults if fault.kind == "drain-python"]
        for row in self._rows["attempts"]:
            pid = self._pids.get(row["worker_id"])
            for fault in drains:
                # The reaper finds them within a second of the sign-off, or after it has been away.
                is_cut = pid == fault.pid and row["outcome"] == "lost"
                if is_cut and fault.began < row["ended"] <= fault.ended + BACK_SECONDS:
                    yield f"{row['execution_id']} attempt {row['number']} was lost by the drain of {fault.victim}"

    def _leftovers(self) -> Iterator[str]:
        for what, count in self._rows["left"][0].items():
            if count:
                yield f"{count} {what}"

    def _processes(self) -> Iterator[str]:
        for process in self._fleet.all():
            yield from process.unasked
        for fault in self._fleet.faults:
            if fault.complaint:
                yield f"{fault.kind} of {fault.victim}: {fault.complaint}"

    def _dead_that_ran(self) -> Iterator[str]:
        """Workers that were declared dead, although their process was neither killed nor stopped."""
        victims = {fault.pid: fault for fault in self._fleet.faults if fault.pid}
        names = {pid: process.name for process in self._fleet.all() for pid in process.pids}
        for row in self._rows["workers"]:
            if row["dead"] is None:
                continue
            fault = victims.get(row["pid"])
            if fault is not None and fault.began <= row["dead"] <= fault.ended + BACK_SECONDS:
                continue
            last = max((fault for fault in self._fleet.faults if fault.began < row["dead"]), default=None, key=began)
            after = f"{row['dead'] - last.began:.1f} s after {last.kind}" if last else "before all faults"
            yield f"{names.get(row['pid'], row['pid'])} {after}"

    # Times.

    def _back(self, bars: Bars) -> Iterator[str]:
        postgres = [fault for fault in self._fleet.faults if fault.kind == "kill-postgres"]
        samples: list[tuple[float, str]] = []
        for fault in self._fleet.faults:
            if fault.kind not in ("kill-python", "kill-rust"):
                continue
            if any(abs(other.began - fault.began) < LEASE_SECONDS for other in postgres):
                continue
            for id, attempts in self._attempts.items():
                for number, row in attempts.items():
                    is_cut = row["outcome"] == "lost" and self._pids.get(row["worker_id"]) == fault.pid
                    # A process may have been several workers.
                    is_cut = is_cut and row["started"] < fault.began < row["ended"]
                    if is_cut and (after := attempts.get(number + 1)) is not None:
                        samples.append((after["started"] - fault.began, f"{id} after {fault.kind} of {fault.victim}"))
        samples.sort()
        seconds = [sample[0] for sample in samples]
        bars.apart["seconds until executions of killed workers run again"] = {
            "cases": len(seconds),
            "p50": rank(seconds, 0.5),
            "p99": rank(seconds, 0.99),
            "max": rank(seconds, 1.0),
        }
        if not samples and any(fault.kind in ("kill-python", "kill-rust") for fault in self._fleet.faults):
            yield "no execution of a killed worker was measured"
        elif rank(seconds, 0.99) > BACK_SECONDS:
            for later, what in samples:
                if later > BACK_SECONDS:
                    yield f"{what}: {later:.1f} s"


def began(fault: Fault) -> float:
    """Time of a fault."""
    return fault.began


def is_woken(fault: Fault, call: Call) -> bool:
    """Whether the call is one that a paused worker was about to send, and sent when it woke."""
    return call.pid == fault.pid and fault.ended - 0.1 <= call.at <= fault.ended + WOKEN_SECONDS


def check_tree(output: dict[str, Any], children: set[str]) -> str:
    """Reason for which the children of an output are wrong."""
    if set(output["children"]) != children or len(children) != 2:
        return f"its children are {sorted(children)}"
    if [part["part"] for part in output["parts"]] != [0, 1]:
        return "the results of its children are mixed up"
    return ""


def shown(call: Call) -> str:
    """A call in words."""
    lost = ", answer lost" if call.is_lost else ""
    return f"run {call.run} of attempt {call.attempt} at {call.at:.3f} by {call.pid}{lost}"


def rank(ordered: list[float], share: float) -> float:
    """The value below which that share of the values is."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 2) if ordered else 0.0
