#!/usr/bin/env bash
# Builds the wheel, installs it into an empty environment and uses it from a folder that is not the source tree.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=$root/.venv/bin/python

pip_quiet() {
    local python=$1
    shift
    "$python" -m pip --disable-pip-version-check --no-input -q "$@" >"$scratch/pip.log" 2>&1 ||
        { tail -n 15 "$scratch/pip.log" >&2; return 1; }
}

# From a copy, so that leftovers of earlier builds in the tree can't get into the wheel.
mkdir "$scratch/source"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
    [ ! -f "$name" ] || printf '%s\0' "$name"
done | xargs -0 cp --parents -t "$scratch/source")
pip_quiet "$python" wheel --no-deps --no-build-isolation -w "$scratch/dist" "$scratch/source"
for room in tests/ deploy/recipes/; do
    ! "$python" -m zipfile -l "$scratch"/dist/*.whl | grep -q "^$room" || { echo "the wheel holds $room" >&2; exit 1; }
done
"$python" -m venv "$scratch/venv"
# The versions of the lock, so that what was tested is what is installed; torch first, for the build of this machine.
grep -oE '^[A-Za-z0-9_.-]+==[^ ]+' "$root/deploy/requirements/lock.txt" >"$scratch/versions.txt"
pip_quiet "$scratch/venv/bin/python" install "$(grep '^torch==' "$scratch/versions.txt")"
pip_quiet "$scratch/venv/bin/python" install -c "$scratch/versions.txt" "$scratch"/dist/*.whl
mkdir "$scratch/elsewhere"
cd "$scratch/elsewhere"
env -u PYTHONPATH "$scratch/venv/bin/computerrl" doctor
env -u PYTHONPATH "$scratch/venv/bin/computerrl" run --dry-run deploy/local.yaml
