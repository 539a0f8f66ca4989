#!/usr/bin/env bash
# Holds the running service against its own description: no answer outside of it, no 5xx.
#
#   scripts/schemathesis.sh [path to bursar] [examples per operation]
#
# Needs Python with pip; schemathesis is installed into a folder of its own. Where that cannot be done, for
# want of a network say, it says so and is skipped.
set -euo pipefail

bursar=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/bursar}")
examples=${2:-25}
folder=$(mktemp -d)
# In memory where there is such a thing: what is checked here does not depend on the disk.
data=$folder/data
[ ! -d /dev/shm ] || data=$(mktemp -d -p /dev/shm)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder" "$data"
}
trap cleanup EXIT

packages=${SCHEMATHESIS_PACKAGES:-}
if [ -z "$packages" ]; then
    packages=$folder/packages
    if ! python3 -m pip install --quiet --retries 1 --target "$packages" 'schemathesis>=4.32,<5' \
        2>"$folder/pip"; then
        cat "$folder/pip" >&2
        echo "SKIPPED: schemathesis cannot be installed here" >&2
        exit 0
    fi
fi

# Starts a server on a folder. Its first lines are in a file.
start() {
    BURSAR_LOG=error "$bursar" serve --dev --listen 127.0.0.1:0 --data "$1" --clock manual >"$2" &
    server=$!
    until grep -q '^listening on ' "$2"; do
        kill -0 "$server"
        sleep 0.1
    done
}
start "$data" "$folder/out"
key=$(sed -n 's/^root key: //p' "$folder/out")
url=$(sed -n 's/^listening on //p' "$folder/out")

call() {
    curl --silent --fail --output /dev/null --request "$1" "$url$2" \
        --header "Authorization: Bearer $key" --header 'Content-Type: application/json' --data "$3"
}
call POST /v1/accounts '{"id": "acme", "kind": "org"}'
call POST /v1/grants '{"id": "g", "account": "acme", "amount": "1000000", "kind": "purchase"}'
call POST /v1/holds '{"id": "h", "account": "acme", "amount": "5"}'
call POST /v1/charges '{"id": "c", "account": "acme", "amount": "5"}'

# A read that waits for a position of the near future is answered with 503 in the end, as described;
# and drawing every corner of a batch's free-form bodies exceeds what Python can nest.
cat >"$folder/schemathesis.toml" <<'TOML'
[parameters]
"query.min_position" = 0
# A report that waits is answered when its time is over: longer than is waited for here.
"query.wait_seconds" = 0

[[operations]]
include-operation-id = "run_batch"
phases.coverage.enabled = false
TOML

# The feed of events never ends by itself, and a clock that runs ahead takes all grants with it: they
# are left to the tests that wait for them.
# It leaves notes in the folder it runs in.
cd "$folder"
PYTHONPATH=$packages python3 -m schemathesis.cli --config-file "$folder/schemathesis.toml" run "$url/openapi.json" \
    --header "Authorization: Bearer $key" \
    --exclude-operation-id follow_events --exclude-operation-id move_clock \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance \
    --max-examples "$examples" --seed 1 --workers 1 --no-color

# Whatever was asked of it, what it leaves is good: its audit holds, and so does what a backup of it becomes.
kill "$server"
wait "$server"
server=
key_before=$(sha256sum <"$data/checkpoint.key")
"$bursar" audit verify --data "$data"
"$bursar" admin backup --data "$data" "$folder/backup"
"$bursar" admin restore "$folder/backup" --data "$folder/restored"
"$bursar" admin check --data "$folder/restored"
[ "$(sha256sum <"$folder/restored/checkpoint.key")" = "$key_before" ]
start "$folder/restored" "$folder/again"
curl --silent --fail --output /dev/null "$(sed -n 's/^listening on //p' "$folder/again")/readyz"
kill "$server"
wait "$server"
server=
"$bursar" audit verify --data "$folder/restored"
