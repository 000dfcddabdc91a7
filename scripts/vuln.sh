#!/bin/sh
# Looks for known vulnerabilities in what the program calls: govulncheck, with the public
# database of Go, or with GOVULNDB (https://HOST or file:///FOLDER, a copy of it).
#
#   0  nothing was found
#   3  something was found; it is printed
#   4  the data cannot be had from here: NOTHING was checked
#   1  another failure
set -u
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
CGO_ENABLED=0 go tool -modfile=scripts/tools.mod govulncheck ${GOVULNDB:+-db "$GOVULNDB"} ./cmd/rutter 2>"$errors"
code=$?
cat "$errors" >&2
if [ $code -ne 0 ] && grep -q -e 'fetching vulnerabilities' -e 'creating client' "$errors"; then
	echo "vuln: NOTHING was checked: the data ${GOVULNDB:-of the public database} cannot be had from here." >&2
	echo "vuln: run it where it can, or set GOVULNDB=file:///FOLDER to a copy of the database." >&2
	exit 4
fi
exit $code
