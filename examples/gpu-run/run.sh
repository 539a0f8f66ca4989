#!/usr/bin/env bash
# One server, one agent, one training run on a real GPU: discovered, priced, metered, preempted, resumed,
# charged, verified. Prints a transcript. Needs `bursar` on the PATH and a python3 with PyTorch.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work"

# Shows a command as one would type it, and runs it.
run() { printf '$ %s\n' "$1"; bash -c "$1" 2>&1; }
# Waits until a job is in one of these states.
until_state() {
    for _ in $(seq 600); do
        state=$(bursar job show "$1" -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["state"])')
        case " $2 " in *" $state "*) return 0 ;; esac
        sleep 0.2
    done
    echo "still $state" && return 1
}

trap 'kill $agent $server 2>/dev/null; wait 2>/dev/null' EXIT

run "nvidia-smi --query-gpu=name,uuid,memory.total,driver_version --format=csv"
echo '$ bursar serve --data data --root-key-file root.key &'
bursar serve --listen 127.0.0.1:0 --data data --root-key-file root.key > serve.log 2> serve.err &
server=$!
for _ in $(seq 100); do grep -q listening serve.log && break; sleep 0.1; done
cat serve.log
BURSAR_SERVER=$(sed -n 's/^listening on //p' serve.log)
export BURSAR_SERVER BURSAR_KEY_FILE=$work/root.key
run "bursar account open lab --name Laboratory -o csv"
run "bursar account open lab:vision --kind team -o csv"
run "bursar grant add lab 5 --kind purchase --id paid -o csv"
run "bursar grant add lab:vision 0.02 --kind promotion --id welcome --expires 2030-01-01T00:00:00Z -o csv"
run "bursar price set H200 4"
bursar key create --role agent --scope '*' --name gpu-node --region default -o json > key.json
python3 -c 'import json; print(json.load(open("key.json"))["key"])' > agent.key; chmod 600 agent.key
echo '$ bursar agent --key-file agent.key --region default --node gpu-1 --state agent &'
bursar agent --server "$BURSAR_SERVER" --key-file agent.key --region default --node gpu-1 \
    --state agent > agent.log 2>&1 &
agent=$!
for _ in $(seq 100); do bursar node ls -o json | grep -q gpu-1 && break; sleep 0.1; done
run "bursar node show gpu-1"
run "bursar quote -a lab:vision -g H200 -t 10m"
run "bursar run --id train -a lab:vision -g H200 -t 10m --grace 60s --yes --detach -- $(command -v python3) $here/train.py $work/model.pt ${STEPS:-12000}"
until_state train running
for _ in $(seq 300); do bursar logs train 2>/dev/null | grep -q 'step 2000' && break; sleep 0.2; done
run "bursar logs train"
run "bursar ls"
run "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
run "bursar job preempt train -o csv"
until_state train "queued starting running"
run "bursar job show train"
until_state train running
run "bursar wait train"
run "bursar logs train"
run "bursar job show train"
run "bursar job timeline train"
run "bursar balance lab:vision"
run "bursar entries lab:vision"
run "bursar audit verify --data data"
echo '# GPU-milliseconds × 4 credits / 3 600 000, rounded once for each attempt, beside what was charged:'
bursar job show train -o json | python3 -c '
import json, sys
from decimal import Decimal, ROUND_HALF_EVEN
job = json.load(sys.stdin)
total = Decimal(0)
for attempt in job["attempts"]:
    cost = (Decimal(4) * attempt["gpu_ms"] / Decimal(3600000)).quantize(Decimal("0.000001"), ROUND_HALF_EVEN)
    total += cost
    print(attempt["id"], attempt["gpu_ms"], "ms", cost.normalize(), "=", attempt["charged"])
    assert cost == Decimal(attempt["charged"])
assert total == Decimal(job["charged"])
print("in all", total.normalize(), "=", job["charged"])'
echo '$ tail -n 5 agent.log'; tail -n 5 agent.log
