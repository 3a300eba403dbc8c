#!/usr/bin/env bash
# Puts Ray into .venv, from the pinned files, for runs whose deploy file has `cluster: {engine: ray}`. Repeating it costs
# a second. Every machine of the cluster needs the same: `make setup ray` in the same checkout, or the wheel with [ray].
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
pinned=deploy/requirements/ray.txt
stamp=.venv/.computerrl/ray
wanted=$(sha256sum "$pinned" | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
mkdir -p .cache "${stamp%/*}"
echo "ray: 235 MB into .venv ..."
.venv/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes --no-deps -r "$pinned" \
    >.cache/ray-pip.log 2>&1 || { tail -n 15 .cache/ray-pip.log >&2; exit 1; }
printf '%s\n' "$wanted" >"$stamp"
