package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
)

// TestContainersDocument runs each command of the section Containers of docs/vms.md, on a node
// with the settings that the page takes for given.
func TestContainersDocument(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w := newWorldWith(t, func(n *node) {
		if n.i == 0 {
			n.zones, n.socket = "/run/netns", "/run/rutter/agent.sock"
		}
	}, log.UUID{0x93, 0x08, 0x96, 0xaf, 0xbf, 0x8c, 0x48, 0xd4, 0x88, 0x5c, 0x65, 0x73, 0xa9, 0x4b, 0x18, 0x53})
	n := w.nodes[0]
	bin := filepath.Join(n.dir, "usr/local/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"rutter": program, "cnitool": os.Getenv(toolEnv)} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../docs/vms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Containers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "\n```")
	if !found || len(blocks) != 7 {
		t.Fatalf("%d pieces of the section, want 3 blocks of commands", len(blocks))
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "RUTTER_SERVER=" + w.cluster.Client.Servers()[0]}
	for i := 1; i < len(blocks); i += 2 {
		kind, script, _ := strings.Cut(blocks[i], "\n")
		for _, path := range []string{"/usr/local/bin", "/opt/cni/bin", "/etc/cni/net.d"} {
			script = strings.ReplaceAll(script, path, n.dir+path)
		}
		if kind != "sh operator" && kind != "sh node" {
			t.Fatalf("a block of %q: it says where its commands are run", kind)
		}
		out := must[string](t)(n.run(t.Context(), append(env, "NETCONFPATH="+n.dir+"/etc/cni/net.d"), "set -eu\n"+script, "sh"))
		if strings.Contains(script, "cnitool add") && (!strings.Contains(out, "mtu 1400") || !strings.Contains(out, "inet 10.0.0.")) {
			t.Errorf("the container's interface: got %s", out)
		}
	}
	n.none()
}
