package node

import (
	"os"
	"strings"

	"rutter/agent/metrics"
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

// measuredHelper is what the metrics have of the helper.
func (n *vmSide) measuredHelper() metrics.Helper {
	s := n.helper.Status()
	m := metrics.Helper{Up: s.Answers}
	if r := s.Helper; r != nil {
		m.Said, m.Open, m.Working, m.Done, m.Failed, m.Refused = true, r.Open, r.Working, r.Done, r.Failed, r.Refused
	}
	return m
}
