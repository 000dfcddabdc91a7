#!/usr/bin/env bash
# Runs the short unit tests of the packages with a file that differs from a revision
# (default HEAD~), and of the packages that import those directly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=${1:-HEAD~}

changed=$({ git diff --name-only "$base" -- && git ls-files --others --exclude-standard; } | xargs -r -d '\n' -n1 dirname | sort -u)
module=$(go list -m)
packages=$(go list -f '{{$p := .ImportPath}}{{$p}} {{.Dir}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}' ./... |
	awk -v root="$PWD" -v module="$module" -v changed="$changed" '
	BEGIN {
		n = split(changed, folders, "\n")
		for (i = 1; i <= n; i++) if (folders[i] ~ /(^|\/)testdata(\/|$)/) sub(/\/?testdata.*/, "", folders[i])
		for (i = 1; i <= n; i++) hit[folders[i] == "." || folders[i] == "" ? module : module "/" folders[i]] = 1
	}
	index($1, module "/integration") == 1 { next }
	{ for (i = 1; i <= NF; i++) if (i != 2 && $i in hit) { print $1; next } }')
if [ -z "$packages" ]; then
	echo "no package differs from $base"
	exit 0
fi
go test -short -vet=off -p "$(($(nproc) + 1))" -parallel "$((2 * $(nproc)))" $packages | grep -v 'no test files' || exit "${PIPESTATUS[0]}"
