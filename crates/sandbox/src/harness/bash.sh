# Runs the code of one request and reports over the socket that was standard input. Confined when it starts.
# What is left open goes first: it may have the number that the channel gets.
if [[ $1 ]]; then eval "exec $1<&-"; fi
exec 8<&0 0</dev/null
set --
mapfile -d '' -t LONGHAUL_REQUEST <&8
if ((${#LONGHAUL_REQUEST[@]} != 2)); then exit 125; fi
input_payload=${LONGHAUL_REQUEST[1]}
input=$input_payload
trap 'LONGHAUL_STATUS=$?; if [[ -v result ]]; then printf "%s" "=$result" >&8; fi; exit "$LONGHAUL_STATUS"' EXIT
eval "${LONGHAUL_REQUEST[0]}"
