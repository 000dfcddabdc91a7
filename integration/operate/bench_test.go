package operate

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/rig"
)

// `rutter bench` measures a cluster that runs behind TLS, with the operator's
// certificate of the environment, through both ways of writing.
func TestBenchOfARunningClusterWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := rig.Cluster(t, bench.Options{Program: program, Servers: 1, Dir: dir, TLS: true})
	operator := filepath.Join(dir, "operator")
	office := tlsgate.Issuer{Folder: filepath.Join(dir, "pki")}
	if _, err := office.Issue(operator, tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Operator, Name: "ada"}, Life: pki.Life, WithKeys: true}); err != nil {
		t.Fatal(err)
	}
	const writers, count = 4, 40
	measure := func(folder string, more ...string) (string, error) {
		args := append([]string{"bench", "append", "-s", cluster.Servers[0].URL, "--writers", "4", "--connections", "2", "--count", "40", "--duration", "0s", "-o", "json"}, more...)
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "RUTTER_TLS_DIR="+folder)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return said.String(), err
		}
		return string(out), nil
	}
	for _, way := range [][]string{nil, {"--http"}} {
		before, err := cluster.Client.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, err := measure(operator, way...)
		var got load.Outcome
		if err != nil {
			t.Fatalf("%v: %v: %s", way, err, text)
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Writers != writers || got.Count != count || got.Errors != 0 {
			t.Errorf("%v: got %v, %s", way, err, text)
		}
		if head, err := cluster.Client.Head(t.Context()); err != nil || head < before+count {
			t.Errorf("%v: the log went from %d to %d (%v), want %d entries more", way, before, head, err, count)
		}
	}
	if said, err := measure(""); err == nil || !strings.Contains(said, "certificate") {
		t.Errorf("without a certificate: %v: %s", err, said)
	}
}
