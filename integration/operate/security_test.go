package operate

import (
	"os/exec"
	"strings"
	"testing"
)

// securityPath is the document whose commands TestSecurityDocument runs, on the
// cluster that docs/deploy.md makes.
const securityPath = "../../docs/security.md"

// deployed are the sections of docs/deploy.md that make a cluster with a node.
var deployed = map[string]bool{"Certificates": true, "Settings": true, "Bootstrap": true, "A compute node": true}

// Every command of docs/security.md works, in its order, and does what it says.
func TestSecurityDocument(t *testing.T) {
	t.Parallel()
	for _, need := range []string{"openssl", "curl"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("needs %s, of the Debian package of that name", need)
		}
	}
	h := newMachines(t)
	for _, s := range steps(t, docPath) {
		if deployed[s.Section] {
			h.run(s)
		}
	}
	h.awaitNode()
	h.awaitKnown("operator/ada", "cn/"+nodeID, "server/s1", "server/s2", "server/s3")
	all := steps(t, securityPath)
	if len(all) < 8 {
		t.Fatalf("%d blocks found in %s", len(all), securityPath)
	}
	for _, s := range all {
		h.run(s)
		switch {
		case strings.Contains(s.Script, "cert revoke cn:"):
			h.stolen()
		case strings.Contains(s.Script, "systemctl start rutter-agent"), strings.Contains(s.Script, "rotate finish"):
			h.awaitNode()
		}
	}
}

// awaitKnown waits until the cluster was told of the certificates of these.
func (h *hosts) awaitKnown(identities ...string) {
	h.t.Helper()
	h.await("certificates to be recorded", func() (string, bool) {
		out := h.must("admin", "rutter cert list")
		for _, who := range identities {
			if !strings.Contains(out, who) && !strings.Contains(out, strings.Replace(who, "/", ":", 1)) {
				return "no " + who + " in " + out, false
			}
		}
		return out, true
	})
}

// stolen looks whether what the node had is worth nothing now.
func (h *hosts) stolen() {
	h.t.Helper()
	h.await("the node's session to end", func() (string, bool) {
		out := h.must("admin", "rutter cn sessions -o json")
		return out, !strings.Contains(out, nodeID)
	})
	out, err := h.sh("cn1", "rutter nic list --tls-dir /etc/rutter/tls -s https://10.0.0.2:7420")
	if err == nil || !strings.Contains(out, "revoked") {
		h.t.Errorf("with a revoked certificate: %v: %s", err, out)
	}
}
