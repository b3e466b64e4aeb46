"""Ticks of cron lines as Python's cronsim gives them.

Reads queries from standard input, one a line, with tabs between: the cron line, the time zone, and pairs of seconds
since 1970, each the start and the end of a stretch of time. Writes for each query the ticks after each start and
before its end, in seconds since 1970, with spaces between; `refused` for a line that cronsim refuses.
"""

import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError


def ticks(line: str, zone: str, start: int, end: int):
    for tick in CronSim(line, datetime.fromtimestamp(start, ZoneInfo(zone))):
        seconds = int(tick.timestamp())
        if seconds >= end:
            return
        yield seconds


for query in sys.stdin:
    line, zone, *bounds = query.rstrip("\n").split("\t")
    bounds = [int(bound) for bound in bounds]
    try:
        found = [tick for start, end in zip(bounds[::2], bounds[1::2]) for tick in ticks(line, zone, start, end)]
        print(*found, flush=True)
    except CronSimError:
        print("refused", flush=True)
