#!/bin/sh
# Makes the files of ../static/npm of what package-lock.json pins. Each begins with the packages in
# it, their hashes in the registry and their licences.
set -eu
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cp package.json package-lock.json ./*.mjs "$dir"
npm ci --prefix "$dir" --silent --ignore-scripts --prefer-offline >&2
for entry in ./*.mjs; do
  name=$(basename "$entry" .mjs)
  case $name in
  codemirror) of='^node_modules/(@codemirror/|@lezer/|@marijn/|crelt|style-mod|w3c-keyname)' licence=@codemirror/view ;;
  markdown-it) of='^node_modules/(markdown-it|entities|linkify-it|mdurl|punycode.js|uc.micro)$' licence='markdown-it entities linkify-it mdurl punycode.js uc.micro' ;;
  dompurify) of='^node_modules/dompurify$' licence=dompurify ;;
  esac
  banner=$(cd "$dir" && node -p '
    const [of, licence] = process.argv.slice(1), {readFileSync, readdirSync} = require("fs")
    const all = Object.entries(require("./package-lock.json").packages).filter(([name]) => new RegExp(of).test(name))
    const text = name => readFileSync("node_modules/" + name + "/" + readdirSync("node_modules/" + name).find(file => /^licen[cs]e/i.test(file)), "utf8")
    all.map(([name, p]) => name.replace("node_modules/", "") + " " + p.version + " " + p.integrity).join("\n") +
      "\n\n" + licence.split(" ").map(text).join("\n").replaceAll("*/", "* /")' "$of" "$licence")
  go run github.com/evanw/esbuild/cmd/esbuild@v0.28.2 "$dir/$name.mjs" --bundle --minify --target=es2022 --charset=utf8 \
    --format=esm --legal-comments=none --banner:js="/*! Bundled for execbroker from:
$banner
*/" --log-level=warning --outfile="../static/npm/$name.js"
done
