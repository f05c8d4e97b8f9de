#!/bin/sh
# Makes the files of ../static/npm of what package-lock.json pins. Each begins with the packages in
# it, their hashes in the registry and their licence.
set -eu
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cp package.json package-lock.json ./*.mjs "$dir"
npm ci --prefix "$dir" --silent --ignore-scripts --prefer-offline >&2
for entry in ./*.mjs; do
  name=$(basename "$entry" .mjs)
  case $name in
  codemirror) of='^node_modules/(@codemirror/|@lezer/|@marijn/|crelt|style-mod|w3c-keyname)' licence=@codemirror/view ;;
  marked) of='^node_modules/marked$' licence=marked ;;
  esac
  banner=$(cd "$dir" && node -p '
    const [of, licence] = process.argv.slice(1), {readFileSync, readdirSync} = require("fs")
    const all = Object.entries(require("./package-lock.json").packages).filter(([name]) => new RegExp(of).test(name))
    const text = readdirSync("node_modules/" + licence).find(name => /^licen[cs]e/i.test(name))
    all.map(([name, p]) => name.replace("node_modules/", "") + " " + p.version + " " + p.integrity).join("\n") +
      "\n\n" + readFileSync("node_modules/" + licence + "/" + text, "utf8").replaceAll("*/", "* /")' "$of" "$licence")
  go run github.com/evanw/esbuild/cmd/esbuild@v0.28.2 "$dir/$name.mjs" --bundle --minify --target=es2022 --charset=utf8 \
    --format=esm --legal-comments=none --banner:js="/*! Bundled for execbroker from:
$banner
*/" --log-level=warning --outfile="../static/npm/$name.js"
done
