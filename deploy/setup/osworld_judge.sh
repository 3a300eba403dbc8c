#!/usr/bin/env bash
# Builds the published metrics' own environment in .venv-osworld from the pinned file: 640 MB. Repeating it costs
# nothing. PYTHON=... picks another interpreter; it must be 3.11, which the pinned wheels are for.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
venv=$root/.venv-osworld
pinned=deploy/requirements/osworld-judge.txt
mkdir -p .cache
exec 9>.cache/osworld-judge.lock
flock 9

say() { printf 'osworld-judge: %s\n' "$*"; }

wanted=$(sha256sum "$pinned" | cut -d' ' -f1)
if [ -f "$venv/.computerrl" ] && [ "$(cat "$venv/.computerrl")" = "$wanted" ]; then exit 0; fi
command -v bwrap >/dev/null || { say "bwrap is missing: make setup"; exit 1; }
python=${PYTHON:-}
for candidate in /usr/bin/python3.11 python3.11; do
    if [ -z "$python" ] && command -v "$candidate" >/dev/null; then python=$candidate; fi
done
[ -n "$python" ] || { say "no Python 3.11 found; apt-get install python3.11 python3.11-venv, or set PYTHON"; exit 1; }
say "environment in .venv-osworld ..."
start=$SECONDS
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --no-input -q install --require-hashes --no-deps \
    -r "$pinned" >.cache/osworld-judge.log 2>&1 || { tail -n 15 .cache/osworld-judge.log >&2; exit 1; }
printf '%s\n' "$wanted" >"$venv/.computerrl"
say "environment: $((SECONDS - start)) s, $(du -sm "$venv" | cut -f1) MB"
