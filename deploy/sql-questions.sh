#!/bin/sh
# Asks the ten questions of docs/reference/sql.md over a million executions of 30 days, and prints the time and the plan
# of each. Ends with 1 if one takes more than 200 ms.
#
#   sh deploy/sql-questions.sh [EXECUTIONS]
set -eu

cd "$(dirname "$0")/.."
executions=${1:-1000000}
. deploy/scratch-postgres.sh
sql() {
    "$bin/psql" -h "$socket" -U longhaul -d postgres -q -X -At -v ON_ERROR_STOP=1 "$@"
}

echo "filling $executions executions"
sql -v executions="$executions" -f deploy/sql-questions.sql

# The questions are the blocks of the section, in its order.
awk -v out="$scratch" '
    /^## / { section = $0 }
    section == "## Ten questions" && /^```sql/ { number++; file = sprintf("%s/%02d.sql", out, number); next }
    /^```/ { file = ""; next }
    section == "## Ten questions" && file == "" && /\?/ { title = $0 }
    file != "" { if (!(file in seen)) { seen[file]; print "-- " title > file } print > file }
' docs/reference/sql.md

slow=0
for question in "$scratch"/[0-9]*.sql; do
    for _ in 1 2; do # the second time with the pages in memory
        { echo 'explain (analyze, buffers, costs off, timing off)' && cat "$question"; } | sql >"$scratch/plan"
    done
    time=$(sed -n 's/^Execution Time: \([0-9]*\).*/\1/p' "$scratch/plan")
    printf '\n%s ms  %s\n' "$time" "$(sed -n '1s/^-- //p' "$question")"
    cat "$scratch/plan"
    [ "$time" -le 200 ] || slow=1
done
exit "$slow"
