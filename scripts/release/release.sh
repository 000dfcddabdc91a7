#!/bin/sh
# Runs the program of this folder for the source in this folder: make release. All of
# these may be set:
#
#   VERSION            of the artefacts; as version.sh says unless given
#   SOURCE_DATE_EPOCH  the time of every file, seconds since 1970; that of the commit
#   REVISION           the commit
#   MAINTAINER         'NAME <ADDRESS>' of who answers for the packages
#   ARCH, ONLY, OUT    lists with commas, and a folder: see main.go
#   PROGRAM            a program of this machine that was built before
set -eu
here=$(dirname "$0")
: "${VERSION:=$("$here/version.sh")}"
: "${REVISION:=$(git rev-parse -q --verify HEAD 2>/dev/null || true)}"
: "${MAINTAINER:=The maintainers of Rutter <rutter@example.org>}"
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) || {
		echo "release: this folder is not a git repository: set SOURCE_DATE_EPOCH and VERSION" >&2
		exit 1
	}
fi
export SOURCE_DATE_EPOCH
# go run keeps the linked program in Go's cache.
exec env GOFLAGS= CGO_ENABLED=0 go run -trimpath -modfile=scripts/release.mod -tags release ./scripts/release \
	-version "$VERSION" -revision "$REVISION" -maintainer "$MAINTAINER" -out "${OUT:-dist}" \
	${ARCH:+-arch "$ARCH"} ${ONLY:+-only "$ONLY"} ${PROGRAM:+-program "$(go env GOARCH)=$PROGRAM"}
