package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bug is one of the eighteen real bugs of peers in docs/peers.md section 1.
type bug struct {
	what, where string
	// tests look for it here, as FOLDER.NAME from the module's root.
	tests []string
}

var bugs = []bug{
	{what: "applied index without data", where: "etcd#13766", tests: []string{"raftstore/internal/changesdb.TestMarkerDuringTransaction", "integration/faults.TestPowerLoss"}},
	{what: "write lost in a crash", where: "etcd#14370", tests: []string{"integration/faults.TestPowerLoss", "integration/faults.TestSchedules", "raftstore.TestCrash"}},
	{what: "authorisation change diverges", where: "etcd#14571", tests: []string{"projections/rules.TestWhatACNMayWrite", "projections/rules.TestRevocations", "raftstore.TestMinorityStops"}}, // rights are decided in the fold, from the change itself
	{what: "crash in defrag", where: "etcd#14685", tests: []string{"integration/faults.TestPowerLoss"}},                                                                                        // stage compact: we rewrite no file, and trim while we serve
	{what: "bookmark sent before its events", where: "etcd#15220", tests: []string{"api/feedserver.TestFeedFollowsAnyHistory", "agent.TestABookmarkWithoutTheInterestDoesNotCount"}},
	{what: "time travel after a partition", where: "etcd#15271", tests: []string{"integration/faults.TestSchedules"}}, // the follower, and each answer against its seq
	{what: "duplicate event", where: "etcd#17247", tests: []string{"integration/faults.TestSchedules", "agent.TestOldAndDoubleEntriesAreIgnored"}},
	{what: "events lost under starvation", where: "etcd#17529", tests: []string{"integration/faults.TestSchedules", "api/feedserver.TestFeedFollowsAnyHistory"}},
	{what: "revision goes back after a crash in compaction", where: "etcd#17780", tests: []string{"integration/faults.TestPowerLoss"}},
	{what: "delete lost when compaction meets it", where: "etcd#18089, #19179", tests: []string{"integration/faults.TestPowerLoss", "varp.TestAwayForAMonth"}},
	{what: "two snapshots in a row", where: "etcd#18055", tests: []string{"raftstore.TestAbsentFollower", "raftstore.TestJoinBySnapshot"}},
	{what: "watch from a future revision gets old events", where: "etcd#20221", tests: []string{"raftstore.TestCheckCursor", "api/feedserver.TestFeedRefusesCursors"}},
	{what: "stale read by a paused process", where: "etcd#20418", tests: []string{"integration/faults.TestPausedLeaderServesNothingStale", "integration/faults.TestSchedules"}},
	{what: "cursor ahead of the log after power loss", where: "nats-server#5412", tests: []string{"integration/faults.TestPowerLoss", "api/feedserver.TestFeedRefusesCursors"}},
	{what: "filter changed while reconnecting loses rows", where: "ovs ae25f8c8f", tests: []string{"api/feedserver.TestFeedFollowsAnyHistory", "agent.TestReplicaFollowsAnyHistory"}},
	{what: "destroyed object answers 404 and its last state is lost", where: "omicron#10290", tests: []string{"agent/vminfo/vmmstate.TestVMMLife", "agent/vminfo/vmmstate.TestVMMHistory", "api/vmm.TestReap", "integration.TestVMState"}},
	{what: "an empty list taken for a delete", where: "headscale#1383", tests: []string{"agent.TestCutResetBeginsAnew", "agent/link/plan.TestPlanWithoutPruneDeletesNothing"}},
	{what: "a changed key missed at resync", where: "flannel#1247", tests: []string{"agent.TestReplicaFollowsAnyHistory", "agent.TestResetDropsWhatIsGone"}},
}

// Each bug has tests, which exist.
func TestBugsOfPeers(t *testing.T) {
	if len(bugs) != 18 {
		t.Errorf("%d bugs, want 18", len(bugs))
	}
	for _, b := range bugs {
		if len(b.tests) == 0 {
			t.Errorf("%s (%s) has no test", b.what, b.where)
		}
		for _, name := range b.tests {
			if !exists(t, name) {
				t.Errorf("%s (%s): there is no %s", b.what, b.where, name)
			}
		}
	}
}

// exists reports whether a folder has a test of that name.
func exists(t *testing.T, name string) bool {
	t.Helper()
	folder, function, _ := strings.Cut(name, ".")
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("func "+function+"(")) {
			return true
		}
	}
	return false
}
