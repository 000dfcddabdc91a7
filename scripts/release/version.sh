#!/bin/sh
# Prints the version of the source in this folder, which is a legal version of Debian
# packages and sorts as they do:
#
#   1.4.0                          the commit with the tag v1.4.0
#   1.4.0~rc.1                     the commit with the tag v1.4.0-rc.1, which is before 1.4.0
#   1.4.0+12.g0123456789ab         12 commits after that tag
#   0.0~git20261123.091000.0123456789ab    no tag yet: time of the commit (UTC), and its hash
#   ...+dirty                      files differ from the commit
#   0.0~unknown                    no git, or no commit
set -eu
git rev-parse -q --verify HEAD >/dev/null 2>&1 || { echo 0.0~unknown; exit 0; }
dirty=
git diff --quiet HEAD -- 2>/dev/null || dirty=+dirty
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	after=$(git rev-list --count "$tag..HEAD")
	version=$(echo "${tag#v}" | sed 's/-/~/')
	[ "$after" -eq 0 ] || version="$version+$after.g$(git rev-parse --short=12 HEAD)"
else
	version="0.0~git$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d.%H%M%S).$(git rev-parse --short=12 HEAD)"
fi
echo "$version$dirty"
