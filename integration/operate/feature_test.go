package operate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// nextRelease builds this program as it will be when it knows one feature
// version more.
func nextRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	format, err := filepath.Abs("../../log/feature.go")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	now := regexp.MustCompile(`(?m)^const FeatureVersion = \d+$`)
	if !now.Match(b) {
		t.Fatal("log/feature.go has no FeatureVersion of its own line")
	}
	changed := filepath.Join(dir, "feature.go")
	if err := os.WriteFile(changed, now.ReplaceAll(b, fmt.Appendf(nil, "const FeatureVersion = %d", log.FeatureVersion+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{format: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(dir, "next")
	build := exec.Command("go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", next, "rutter/cmd/rutter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return next
}

// features returns the cluster's feature version as each server has it.
func features(t *testing.T, api *client.Client) (all []uint32) {
	t.Helper()
	for _, server := range api.Servers() {
		status, err := api.StatusOf(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, status.Detail.Feature)
	}
	return all
}

// A release that knows a higher feature version is rolled out, taken back, and
// rolled out again, under load. The version rises only when every server has
// known it for a while; from then on the release before refuses to start and
// says why, and the others go on.
func TestFeatureVersionAcrossReleases(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("takes two minutes, which the feature version takes to rise: RUTTER_LONG=1")
	}
	t.Parallel()
	names := []string{"s1", "s2", "s3"}
	next := nextRelease(t)
	h, api := startServers(t, names, threePeers+"\nfeature-settle = \"30s\"")
	w := startWriters(t, api, 4)
	install := func(name, binary string) {
		t.Helper()
		h.must(name, "install -m 755 "+binary+" /usr/bin/rutter.new && mv /usr/bin/rutter.new /usr/bin/rutter && systemctl restart rutter-server")
	}
	roll := func(binary string) {
		t.Helper()
		for _, name := range names {
			w.awaitMore(10)
			install(name, binary)
			h.must(name, "rutter cluster status --wait 1m")
			for i, got := range features(t, api) {
				if got != log.FeatureVersion {
					t.Fatalf("feature version %d on %s, before each server could know it for a while", got, names[i])
				}
			}
		}
	}
	roll(next)
	roll(program) // the upgrade is taken back
	roll(next)
	risen := func() bool {
		for _, got := range features(t, api) {
			if got != log.FeatureVersion+1 {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(3 * time.Minute); !risen(); w.awaitMore(10) {
		if time.Now().After(end) {
			t.Fatalf("feature versions %v three minutes after the last upgrade", features(t, api))
		}
	}
	install("s3", program)
	out := ""
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out, "upgrade it"); w.awaitMore(10) {
		out = h.must("s3", "tail -n 3 ROOT/log")
		if time.Now().After(end) {
			t.Fatalf("the older program says nothing of the version:\n%s", out)
		}
	}
	if strings.Contains(out, "goroutine ") {
		t.Errorf("a trace for a message:\n%s", out)
	}
	t.Logf("the older program: %s", out)
	install("s3", next)
	h.must("s3", "rutter cluster status --wait 1m")
	w.awaitMore(10)
	checkLogs(t, api, w.stop())
}
