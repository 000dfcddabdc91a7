#!/bin/sh
# Makes docs/console.png, the picture of the console in README, from a `rutter dev` that
# it builds and runs. It needs Chromium (scripts/browser-packages.txt). With an argument it
# writes that file.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
go build -o "$folder/rutter" ./cmd/rutter
go run ./integration/console/picture -program "$folder/rutter" -out "${1:-docs/console.png}"
