#!/usr/bin/env bash
# The learner's tests with the newest Megatron-core that is supported, and GPUs' torch: in an environment of its own,
# 6.4 GB in .cache/megatron-today. It needs Python 3.12: PYTHON=... names one, else python3.12 or the newest of pyenv's.
# COMPUTERRL_MEGATRON=... names another folder, which several checkouts can share. With --if-there it is skipped where
# there is no Python 3.12; what follows is pytest's.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
venv=${COMPUTERRL_MEGATRON:-.cache/megatron-today}
lock=deploy/requirements/lock.txt
say() { printf 'megatron-today: %s\n' "$*"; }

python=
for candidate in "${PYTHON:-python3.12}" $(ls -rv "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12 2>/dev/null || true); do
    # A shim of pyenv's may be there without a Python behind it.
    if "$candidate" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    say "no Python 3.12 here (PYTHON=... names one); Debian 12 has none: policy/megatron/README.md says how it gets one"
    [ "${1:-}" = --if-there ] && say "skipped" && exit 0
    exit 1
fi
[ "${1:-}" != --if-there ] || shift

torch=$(grep -o '^torch==[^ ]*' deploy/requirements/torch-gpu.txt)
wanted=$(cat "$lock" <(echo "$torch") | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.computerrl" 2>/dev/null || true)" != "$wanted" ] || ! "$venv/bin/python" -c ''; then
    start=$SECONDS
    say "$torch and what $lock names, into $venv ..."
    rm -rf "$venv"
    "$python" -m venv "$venv"
    pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q "$@"; }
    pip install "$torch"
    awk '/^[^ #]/ { skip = /^torch==/ } !skip' "$lock" >"$venv/lock.txt"
    pip install --require-hashes --no-deps -r "$venv/lock.txt"
    echo "$wanted" >"$venv/.computerrl"
    say "environment: $((SECONDS - start)) s"
fi
export PYTHONPATH=$root OMP_NUM_THREADS=1
"$venv/bin/python" -c 'import importlib.metadata as m, sys; print("megatron-today: Python", sys.version.split()[0], *(f"{n} {m.version(n)}" for n in ("megatron-core", "torch")))'
exec "$venv/bin/python" -m pytest -q -n 2 --dist loadfile --timeout 900 -m "not proof" tests/policy/test_megatron_*.py \
    tests/policy/test_{architecture,broadcast,checkpoints,lora,losses,memory,parallel,reference,vision_learner,vocab,weights}.py \
    tests/actors/learner tests/invariants/test_ranks_train_as_one.py "$@"
