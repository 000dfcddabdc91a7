package clustercmd

import (
	"strings"
	"testing"

	"rutter/api/client"
)

// The table of servers has a line for each, which says its zone, and whether it is a replica.
func TestServersTable(t *testing.T) {
	var b strings.Builder
	writeServers(&b, []serverAnswer{
		{URL: "http://a", Status: client.Status{ID: "s1", State: "Leader", Ready: true}},
		{URL: "http://b", Status: client.Status{ID: "r1", State: "Follower", Zone: "east", Ready: true, Detail: client.Detail{Replica: true}}},
		{URL: "http://c", Status: client.Status{ID: "r2", State: "Follower", Zone: "east", NotReady: "this replica lags", Detail: client.Detail{Replica: true}}},
		{URL: "http://d", Error: "refused"},
	})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	columns := strings.Count(lines[0], "\t")
	for i, want := range []string{"SERVER\tID\tSTATE\tZONE\t", "http://a\ts1\tLeader\t-\t", "http://b\tr1\tReplica\teast\t", "http://c\tr2\tReplica\teast\t", "http://d\t-\t-\t-\t"} {
		if !strings.HasPrefix(lines[i], want) || strings.Count(lines[i], "\t") != columns {
			t.Errorf("line %d is %q; want %q and so on, in %d columns", i, lines[i], want, columns+1)
		}
	}
	if !strings.HasSuffix(lines[3], "no: this replica lags") {
		t.Errorf("%q does not say why", lines[3])
	}
}
