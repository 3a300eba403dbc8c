#!/usr/bin/env bash
# The learner's tests with the newest Megatron-core that is supported, and GPUs' torch: in an environment of its own,
# 6 GB in .cache/megatron-today. It needs Python 3.12, which PYTHON=... names where it has another name.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
venv=.cache/megatron-today
lock=deploy/requirements/lock.txt
python=${PYTHON:-python3.12}
command -v "$python" >/dev/null || { echo "megatron-today: no $python; Debian 12 has none: see policy/megatron/README.md" >&2; exit 1; }
torch=$(grep -o '^torch==[^ ]*' deploy/requirements/torch-gpu.txt)
wanted=$(cat "$lock" <(echo "$torch") | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.computerrl" 2>/dev/null || true)" != "$wanted" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q "$@"; }
    echo "megatron-today: $torch and what $lock names, into $venv ..."
    pip install "$torch"
    awk '/^[^ #]/ { skip = /^torch==/ } !skip' "$lock" >"$venv/lock.txt"
    pip install --require-hashes --no-deps -r "$venv/lock.txt"
    echo "$wanted" >"$venv/.computerrl"
fi
export PYTHONPATH=$root OMP_NUM_THREADS=1
"$venv/bin/python" -c 'import importlib.metadata as m, sys; print("megatron-today: Python", sys.version.split()[0], *(f"{n} {m.version(n)}" for n in ("megatron-core", "torch")))'
exec "$venv/bin/python" -m pytest -q -n 0 --timeout 900 -m "not proof" tests/policy/test_megatron_*.py \
    tests/policy/test_{architecture,average,broadcast,checkpoints,lora,losses,memory,parallel,reference,vision_learner,vocab,weights}.py \
    tests/actors/learner tests/invariants/test_ranks_train_as_one.py "$@"
