package vmmstate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// apiVersion is one version of the agent's answers.
type apiVersion struct{ major, minor, patch uint64 }

// The versions. 2.0.0 adds the reason of a failure, and the VM.
var (
	vmmV1 = apiVersion{1, 0, 0}
	vmmV2 = apiVersion{2, 0, 0}
)

func (v apiVersion) compare(w apiVersion) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor), cmp.Compare(v.patch, w.patch))
}

// NewestVersion is the newest version that the header api-version may name.
const NewestVersion = "2.0.0"

// parseVersion reads MAJOR.MINOR.PATCH (semver.org, 2), without what may follow.
func parseVersion(text string) (apiVersion, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return apiVersion{}, fmt.Errorf("%q is no MAJOR.MINOR.PATCH", text)
	}
	var numbers [3]uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return apiVersion{}, fmt.Errorf("%q is no MAJOR.MINOR.PATCH", text)
		}
		numbers[i] = n
	}
	return apiVersion{numbers[0], numbers[1], numbers[2]}, nil
}
