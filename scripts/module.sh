#!/bin/sh
# Renames the module: scripts/module.sh host/org/rutter, or make module PATH=host/org/rutter.
# It rewrites go.mod and the module files beside it, every import, and each other place
# that names a package by its path; then nothing names the old one. Run it in a clean tree.
PATH=$(command -p getconf PATH) # make's PATH=... is the module's, and not where programs are
export PATH
set -eu
cd "$(dirname "$0")/.."
new=${1:-}
case $new in
'' | *[!a-zA-Z0-9._/~-]* | /* | */ | *//*)
	echo "module: \"$new\": want a module's path, as in make module PATH=example.org/team/rutter" >&2
	exit 2
	;;
esac
old=$(sed -n 's/^module //p' go.mod)
test "$new" != "$old" || exit 0
# The folders at the top that have packages: only names below these are ours.
folders=$(find . -mindepth 2 -name '*.go' ! -path './.*' | cut -d/ -f2 | sort -u | tr '\n' '|' | sed 's/|$//')
quoted=$(printf '%s' "$old" | sed 's/[.]/[.]/g')
pattern="(^|[^A-Za-z0-9_./~-])$quoted/($folders)(/|\"|'|\`| |\\\\|\)|:|,|;|\$)"
grep -rlE --include='*.go' --include=Makefile --include='*.sh' --exclude=module.sh --exclude-dir=.git "$pattern" . |
	xargs -r sed -i -E "s#$pattern#\\1$new/\\2\\3#g"
sed -i "s#^module $quoted\\(/.*\\)\\{0,1\\}\$#module $new\\1#" go.mod scripts/*.mod
sed -i "s#'^$quoted/integration'#'^$new/integration'#" Makefile
echo "the module is $new now"
