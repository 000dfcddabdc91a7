package guest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTaggedLinks runs the tests of agent/link with two and three nodes, tagged
// and untagged, ahead and on demand, that of a NIC that moves, and that of what
// the log says of VMs, in the guest: the machine's own kernel may lack 802.1Q.
// There none of them may skip, and a name that no test has fails.
func TestTaggedLinks(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/agent/link"), "^(TestKernelTwoNodes|TestSecuredLinksTwoNodes|TestKernelThreeNodes|TestKernelVMSide|TestFirstPacketsAreAnsweredOnDemand|TestNICMovesWithoutAGap)$", Config{})
}

// BenchmarkTaggedStacks runs that of agent/link in the guest, and passes its
// figure on: full stacks, made by a pass and by a bare loop.
func BenchmarkTaggedStacks(b *testing.B) {
	SkipUnlessAvailable(b)
	binary := BuildTest(b, "rutter/agent/link")
	figure := regexp.MustCompile(`([0-9.]+) (tagged_stacks_vs_raw)`)
	var said strings.Builder
	for b.Loop() {
		said.Reset()
		code, err := Run(b.Context(), Config{
			Binary: binary, Output: &said,
			Args: []string{"-test.run", "^$", "-test.bench", "^BenchmarkTaggedStacks$", "-test.benchtime", "1x", "-test.v"},
		})
		if err != nil || code != 0 {
			b.Fatalf("exit code %d, %v\n%s", code, err, said.String())
		}
	}
	match := figure.FindStringSubmatch(said.String())
	if match == nil {
		b.Fatalf("no figure in what the guest said:\n%s", said.String())
	}
	value, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(value, match[2])
}

// TestPortSecurityNeedsFamilies: the guest's nf_tables lacks families that port security
// needs, and package filter says which.
func TestPortSecurityNeedsFamilies(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/agent/filter"), "^TestOpenNamesWhatTheKernelLacks$", Config{})
}
