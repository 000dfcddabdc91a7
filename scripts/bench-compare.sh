#!/bin/sh
# Appends with the program of a commit and with the present one, in turn and in one run, and
# ends with an error if the present one is worse by more than a tenth: bench-compare.sh COMMIT
set -eu
commit=${1:?name a commit, as in make bench-compare OLD=HEAD~10}
folder=$(mktemp -d)
trap 'git worktree remove --force "$folder/tree" 2>/dev/null; rm -rf "$folder"' EXIT
git worktree add --quiet --detach "$folder/tree" "$commit"
(cd "$folder/tree" && CGO_ENABLED=0 go build -trimpath -o "$folder/rutter" ./cmd/rutter)
go run ./integration/bench/store -part append -old "$folder/rutter" -results "$folder/results.json"
