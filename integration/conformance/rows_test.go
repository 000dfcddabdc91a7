package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"rutter/api/triton/conformance"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// listeners starts one server with the listeners of old programs, and returns their URLs.
func listeners(t *testing.T) map[conformance.Service]string {
	t.Helper()
	ports := rig.Ports(t, len(conformance.Services))
	flags := []string{"--log-level=warn", "--triton-allow=127.0.0.1/32=programs", "--triton-admin=930896af-bf8c-48d4-885c-6573a94b1853", "--overlay-tag=sdc_overlay"}
	bases := map[conformance.Service]string{}
	for i, service := range conformance.Services {
		address := fmt.Sprintf("127.0.0.1:%d", ports[i])
		flags = append(flags, fmt.Sprintf("--%s=%s", service, address))
		bases[service] = "http://" + address
	}
	rig.Cluster(t, bench.Options{Program: rutter, Servers: 1, Flags: flags})
	return bases
}

func groups(t *testing.T) []*conformance.Group {
	t.Helper()
	all, err := conformance.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// departures is section 5 of the page for operators.
func departures(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/triton.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), "\n## 5. ")
	if !found {
		t.Fatal("docs/triton.md has no section 5")
	}
	return section
}

// Each documented call and refusal is answered as it is documented, or as docs/triton.md
// says that Rutter departs.
func TestRows(t *testing.T) {
	bases, listed := listeners(t), departures(t)
	for _, g := range groups(t) {
		t.Run(g.Name, func(t *testing.T) {
			runner, err := conformance.NewRunner(bases, false, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer runner.Close()
			report, err := runner.Run(t.Context(), []*conformance.Group{g})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				verdict(t, r, listed)
			}
		})
	}
}

func verdict(t *testing.T, r conformance.Result, listed string) {
	t.Helper()
	told := fmt.Sprintf("%s (%s): %s\n  %s\n  source: %s", r.ID, r.Call, r.Shows, strings.Join(r.Differences, "\n  ")+r.Why, r.Source)
	switch {
	case r.Outcome == conformance.Skipped:
		t.Errorf("SKIPPED %s: %s", r.ID, r.Why)
	case r.Outcome == conformance.Pending:
		t.Logf("PENDING %s", told)
	case r.Outcome == conformance.Unmarked:
		t.Logf("%s holds: take `pending: true` out", r.ID)
	case r.Outcome == conformance.Departs && !strings.Contains(listed, r.Departure):
		t.Errorf("%s: section 5 of docs/triton.md has no item with %q", r.ID, r.Departure)
	case r.Outcome == conformance.Holds && r.Departure != "":
		t.Errorf("%s is answered as documented: take departure and ours out, and the item in docs/triton.md", r.ID)
	case r.Outcome != conformance.Holds && r.Outcome != conformance.Departs:
		t.Errorf("%s %s", strings.ToUpper(string(r.Outcome)), told)
	}
}
