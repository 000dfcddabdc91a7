package vmhelper

import (
	"fmt"
	"path/filepath"
	"strings"
)

// differ says which folders of a client are not those of the helper: ErrFolders. What a
// client leaves out is not compared.
func (f Folders) differ(helper Folders) error {
	var differences []string
	for _, p := range []struct{ name, client, helper string }{
		{"manifests", f.Manifests, helper.Manifests},
		{"vm-run", f.PIDs, helper.PIDs},
		{"netns", f.NetNS, helper.NetNS},
		{"etc-netns", f.EtcNetNS, helper.EtcNetNS},
		{"vm-cgroup", f.Cgroup, helper.Cgroup},
	} {
		if p.client != "" && clean(p.client) != clean(p.helper) {
			differences = append(differences, fmt.Sprintf("%s is %q for the agent and %q for the helper", p.name, p.client, p.helper))
		}
	}
	if differences == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrFolders, strings.Join(differences, ", "))
}

// clean is a path of which two forms of one folder are the same: /var/run is /run.
func clean(path string) string {
	path = filepath.Clean(path)
	if under, is := strings.CutPrefix(path, "/var/run/"); is {
		return "/run/" + under
	}
	return path
}
