#!/bin/sh
# Makes bundle.js of strip.mjs and what package-lock.json pins.
set -eu
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cp package.json package-lock.json strip.mjs "$dir"
npm ci --prefix "$dir" --silent --ignore-scripts --prefer-offline >&2
licence=$(cat "$dir/node_modules/sucrase/LICENSE")
go run github.com/evanw/esbuild/cmd/esbuild@v0.28.2 "$dir/strip.mjs" --bundle --minify --target=es2022 --charset=utf8 \
  --format=iife --global-name=typescript --banner:js="/* Sucrase, bundled.
$licence
*/" --log-level=warning --outfile=bundle.js
