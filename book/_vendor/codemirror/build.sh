#!/bin/sh
# Make codemirror.js again from entry.js and the pinned packages (needs Node and npm). The committed
# bundle has the sha256 that ../manifest.json names; this script prints it to compare.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/entry.js" "$here/package.json" "$here/package-lock.json" "$work"
cd "$work"
npm ci --no-audit --no-fund --silent
npx esbuild entry.js --bundle --minify --format=esm --target=es2020 --legal-comments=none --outfile=codemirror.js
cp codemirror.js "$here/codemirror.js"
sha256sum "$here/codemirror.js"
