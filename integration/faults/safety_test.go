package faults

import "testing"

// rule is one line of shared/SAFETY.md.
type rule struct {
	name, what string
	// tests hold it here, as FOLDER.NAME from the module's root.
	tests []string
}

var rules = []rule{
	{"S1", "a snapshot's meta is that of the data in it", []string{"raftstore.TestMarkerDuringTransaction", "raftstore.TestRestore", "raftstore.TestRecover", "raftstore.TestRaftLogLost", "raftstore.TestJoinBySnapshot"}},
	{"S2", "state and marker are published together", []string{"raftstore.TestCrash", "raftstore.TestCrashAtEachWrite", "integration/faults.TestPowerLoss"}},
	{"S3", "a snapshot waits for what was handed over, not for an index", []string{"raftstore.TestMarkerDuringTransaction", "raftstore.TestOldEpoch"}},
	{"S4", "a restore ends what is older", []string{"raftstore.TestOldEpoch", "raftstore.TestRestore"}},
	{"S5", "readers hold up neither writer nor end", []string{"raftstore.TestBackupUnderLoad", "raftstore.TestReaderMeetsCompaction", "raftstore.TestLongestGap"}},
	{"S6", "a stream is as long as was said", []string{"raftstore.TestImage", "raftstore.TestRestoreDamaged"}},
	{"S7", "a stream does not make itself useless", []string{"raftstore.TestAbsentFollower", "raftstore.TestJoinBySnapshot", "raftstore.TestTrimInSteps"}},
	{"S8", "nothing goes backwards, and a restore is another log", []string{"raftstore.TestImage", "raftstore.TestRestore", "integration/operate.TestOldCursorsAfterRestore"}},
	{"P1", "the ring drops nothing that is not durable", []string{"raftstore.TestRingModel", "raftstore.TestEntriesKeepChangesWhole", "raftstore.TestReaderMeetsCompaction"}},
	{"P2", "a slow disk holds up proposals only", []string{"raftstore.TestOverload", "raftstore.TestDiskTrouble", "integration/operate.TestRealDiskTrouble"}},
	{"P3", "an error after enqueueing means unknown", []string{"raftstore.TestNotWritten", "raftstore.TestDiskFails"}},
	{"P4", "ready after the leader's commit, and no panic of raft's", []string{"raftstore.TestThreeServers", "raftstore.TestCheckCursor", "raftstore.TestDiskFails", "raftstore.TestTermNotSaved", "api.TestFeedWaitsForTheCursor"}},
	{"P5", "what the chain does not show is compared too", []string{"raftstore.TestMinorityStops", "raftstore.TestDigestOfHead", "raftstore.TestPoints", "raftstore.TestWindowModel"}},
	{"D1", "newer programs write what the feature version says", []string{"raftstore.TestFeatureVersionRises", "raftstore.TestUnknownCommand", "integration/operate.TestFeatureVersionAcrossReleases", "integration/operate.TestUpgradeAndBackUnderLoad"}},
	{"D2", "each server computes the same", []string{"projections.TestAgainstModel", "projections.TestTimeNeverGoesBack", "raftstore.TestClockJump", "raftstore.TestNoMajorityStops"}},
	{"F1", "an event is heard where it was and where it is", []string{"projections.TestScopesWithinOneChange", "api.TestFeedUnderlayClosure", "api.TestFeedFollowsAnyHistory"}},
	{"F2", "nothing in a cache is replaced by what is older", []string{"agent.TestOldAndDoubleEntriesAreIgnored", "agent.TestReplicaFollowsAnyHistory", "projections.TestFoldTakesOnlyNewer"}},
	{"F3", "only a whole scope's absences delete", []string{"agent.TestCutResetBeginsAnew", "agent.TestResetDropsWhatIsGone", "agent/link.TestPlanWithoutPruneDeletesNothing"}},
	{"F4", "a filtered stream shows which log it is of", []string{"agent.TestStreamThatCannotBeRight", "api.TestFeedRefusesCursors"}},
	{"F5", "a stream starts in order", []string{"api.TestFeedStartOrder", "api.TestFeedThatFellBehind", "api.TestFeedFollowsAnyHistory"}},
	{"B1", "programmed is what the kernel has, in this process", []string{"agent.TestProgrammedOnlyWhenMatched", "agent.TestProgrammedIsOfBeforeThePass", "api/liveness.TestBarrierNeverLies"}},
	{"B2", "the barrier asks all who are interested at its end", []string{"api/liveness.TestBarrierIsOfThoseAtItsEnd", "api/liveness.TestBarrierNeverLies", "api.TestBarrierOfAWholeChange"}},
	{"R1", "a consistent read knows that no newer leader was", []string{"integration/faults.TestPausedLeaderServesNothingStale", "raftstore.TestConsistentOnFollowers", "raftstore.TestNoQuorum", "integration/faults.TestSchedules"}},
}

// Each rule has tests, which exist.
func TestRulesOfSafety(t *testing.T) {
	if len(rules) != 23 {
		t.Errorf("%d rules, want 23", len(rules))
	}
	for _, r := range rules {
		if len(r.tests) == 0 {
			t.Errorf("%s (%s) has no test", r.name, r.what)
		}
		for _, name := range r.tests {
			if !exists(t, name) {
				t.Errorf("%s (%s): there is no %s", r.name, r.what, name)
			}
		}
	}
}
