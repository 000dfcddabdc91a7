#!/usr/bin/env bash
# Runs the short unit tests of the packages with a file that differs from a revision
# (default HEAD~), and of the packages that import those, or whose tests do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=${1:-HEAD~}

folders=$({ git diff --name-only "$base" -- && git ls-files --others --exclude-standard; } |
	xargs -r -d '\n' -n1 dirname | sed -E 's|(^\|/)testdata(/.*)?$||' | sort -u)
module=$(go list -m)
mapfile -t packages < <(go list -test -f '{{or .ForTest .ImportPath}}{{range .Imports}} {{.}}{{end}}' ./... |
	awk -v module="$module" -v folders="$folders" '
	BEGIN {
		n = split(folders, all, "\n")
		for (i = 1; i <= n; i++) changed[module "/" all[i]]
	}
	$1 ~ /\.test$/ || index($1, module "/integration") == 1 { next }
	{ for (i = 1; i <= NF; i++) if ($i in changed) { print $1; next } }' | sort -u)
if [ ${#packages[@]} -eq 0 ]; then
	echo "quick: no package differs from $base"
	exit 0
fi
go test -short -vet=off -p "$(($(nproc) + 1))" -parallel "$((2 * $(nproc)))" "${packages[@]}" |
	{ grep -v 'no test files' || true; }
