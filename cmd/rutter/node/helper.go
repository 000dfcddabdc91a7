package node

import (
	"os"
	"strings"
)

// trouble is what operators must know of the helper that runs VMs.
func (n *vmSide) trouble() []string {
	if n.helper == nil {
		return nil
	}
	if s := n.helper.Status(); s.Helper == nil && !n.helperAsked && !hasManifest(n.manifests) {
		return nil // it never was there, and there is nothing to run
	}
	return n.helper.Trouble()
}

// manifestNames is how many names of a folder are read at once.
const manifestNames = 64

// hasManifest reports whether a folder has a manifest of a VM.
func hasManifest(path string) bool {
	folder, err := os.Open(path)
	if err != nil {
		return false
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(manifestNames)
		for _, name := range names {
			if strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".") {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}
