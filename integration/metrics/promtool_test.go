package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unpacked is where scripts/install-packages.sh puts the package.
const unpacked = "/var/cache/rutter-tests/prometheus/usr/bin"

// promtool returns the program, or skips.
func promtool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(unpacked, "promtool")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: as root on Debian, scripts/install-packages.sh unpacks it from the package prometheus")
	}
	return path
}

// promtool finds nothing to say of the answers of a server and of an agent.
func TestPromtool(t *testing.T) {
	program := promtool(t)
	w := start(t)
	_, status := w.startNode(t, cns(1), "node")
	await(t, w.url, "the node is there", func(all map[string]float64) bool { return all["rutter_cns_connected"] == 1 })
	check := func(answer string) string {
		cmd := exec.Command(program, "check", "metrics")
		cmd.Stdin = strings.NewReader(answer)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return err.Error() + "\n" + string(out)
		}
		return string(out)
	}
	for name, url := range map[string]string{"the server": w.url, "the agent": status} {
		if out := check(scrape(t, url)); out != "" {
			t.Errorf("%s: %s", name, out)
		}
	}
	if check("# TYPE rutter_bad counter\nrutter_bad 1\n") == "" {
		t.Error("promtool takes a counter without _total: it checks nothing")
	}
}
