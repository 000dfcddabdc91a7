package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// rule is one of the rules of docs/safety.md.
type rule struct {
	name, what string
	// tests hold it here, as FOLDER.NAME from the module's root.
	tests []string
}

var rules = []rule{
	{"S1", "a snapshot's meta is that of the data in it", []string{"raftstore/internal/changesdb.TestMarkerDuringTransaction", "raftstore.TestRestore", "raftstore.TestRecover", "raftstore.TestRaftLogLost", "raftstore.TestJoinBySnapshot", "raftstore/internal/changesdb.TestMarkerAfterEachTransaction"}},
	{"S2", "state and marker are published together", []string{"raftstore.TestCrash", "raftstore.TestCrashAtEachWrite", "integration/faults.TestPowerLoss"}},
	{"S3", "a snapshot waits for what was handed over, not for an index", []string{"raftstore/internal/changesdb.TestMarkerDuringTransaction", "raftstore/internal/changesdb.TestOldEpoch", "raftstore.TestRebuildAfterBarrier"}},
	{"S4", "a restore ends what is older", []string{"raftstore.TestRestoreRaisesEpoch", "raftstore/internal/changesdb.TestOldEpoch", "raftstore.TestRestore", "raftstore.TestFinalMarker"}},
	{"S5", "readers hold up neither writer nor end", []string{"raftstore.TestBackupUnderLoad", "raftstore.TestReaderMeetsCompaction", "raftstore.TestLongestGap"}},
	{"S6", "a stream is as long as was said", []string{"raftstore.TestImage", "raftstore.TestRestoreDamaged"}},
	{"S7", "a stream does not make itself useless", []string{"raftstore.TestAbsentFollower", "raftstore.TestJoinBySnapshot", "raftstore/internal/raftlog.TestTrimInSteps", "raftstore.TestStreamAfterBarrier"}},
	{"S8", "nothing goes backwards, and a restore is another log", []string{"raftstore.TestImage", "raftstore.TestRestore", "integration/operate.TestOldCursorsAfterRestore", "raftstore.TestRebuildAfterBarrier"}},
	{"P1", "the ring drops nothing that is not durable", []string{"raftstore/internal/changesdb.TestRingModel", "raftstore.TestEntriesKeepChangesWhole", "raftstore.TestReaderMeetsCompaction"}},
	{"P2", "a slow disk holds up proposals only", []string{"raftstore.TestOverload", "raftstore.TestDiskTrouble", "integration/operate.TestRealDiskTrouble"}},
	{"P3", "an error after enqueueing means unknown", []string{"raftstore.TestNotWritten", "raftstore.TestDiskFails", "raftstore.TestUnknownFateAdvisesNothing", "api.TestUnknownFateIsToldAsSuch"}},
	{"P4", "ready after the leader's commit, and no panic of raft's", []string{"raftstore.TestThreeServers", "raftstore.TestCheckCursor", "raftstore.TestDiskFails", "raftstore.TestTermNotSaved", "api/feedserver.TestFeedWaitsForTheCursor"}},
	{"P5", "what the chain does not show is compared too", []string{"raftstore.TestMinorityStops", "raftstore.TestDigestOfHead", "raftstore.TestPoints", "raftstore/internal/window.TestWindowModel"}},
	{"D1", "newer programs write what the feature version says", []string{"raftstore.TestFeatureVersionRises", "raftstore.TestUnknownCommand", "integration/operate.TestFeatureVersionAcrossReleases", "integration/operate.TestUpgradeAndBackUnderLoad", "raftstore.TestSameBytesAsTheFirstVersion", "integration/containment.TestUpgradeUnderRefusals", "log.TestLateBytes", "log.TestChangesCarryNothingUnread", "raftstore.TestLateBytesThroughTheRaise", "log.TestRevertsBelowTheirVersion", "raftstore.TestRevertsBeforeTheirVersion"}},
	{"D3", "a network fits the underlays as the log knows them", []string{"projections/rules.TestNetworkFitsUnderlay", "projections/rules.TestUnderlayNICsFollowServer", "projections/rules.TestCNReportsUnderlay", "projections/rules.TestUnderlayBeforeFeaturePerNode", "projections/desired.TestUnderlayMTUOfANode", "projections/desired.TestVXLANPortOfANode", "varp.TestPortOfANode", "agent/underlay.TestPathOverNarrowLink", "integration.TestUnderlayMTUAndPort"}},
	{"D2", "each server computes the same", []string{"projections/rules.TestAgainstModel", "projections/rules.TestTimeNeverGoesBack", "raftstore/internal/clocks.TestClockJump", "raftstore.TestNoMajorityStops"}},
	{"D4", "a name is one network's, and a gateway is what NICs say", []string{"projections/rules.TestNetworkNames", "projections/rules.TestAdminNetwork", "projections/rules.TestGatewayProvisioned", "projections/rules.TestStaleGateway", "projections/rules.TestNamesAndGatewaysOfAnyHistory", "projections/rules.TestRenameTag", "projections/rules.TestManyUsersOfATag", "projections/rules.TestTagsOfANode", "api/triton/napi.TestNoSecondAdmin", "api/triton/napi.TestGatewayAfterTheRaise", "cmd/rutter/importcmd.TestDuplicateNames", "cmd/rutter/importcmd.TestGatewayOfImports"}},
	{"F1", "an event is heard where it was and where it is", []string{"projections/rules.TestScopesWithinOneChange", "api/feedserver.TestFeedUnderlayClosure", "api/feedserver.TestFeedFollowsAnyHistory", "agent.TestUnderlayOfALeaverGoes", "api/feedserver.TestFeedUnderlayOfAReturner"}},
	{"F2", "nothing in a cache is replaced by what is older", []string{"agent.TestOldAndDoubleEntriesAreIgnored", "agent.TestReplicaFollowsAnyHistory", "agent.TestNewerThanTheScopeStays", "agent.TestEventOlderThanTheObject"}},
	{"F3", "only a whole scope's absences delete", []string{"agent.TestCutResetBeginsAnew", "agent.TestResetDropsWhatIsGone", "agent/link/plan.TestPlanWithoutPruneDeletesNothing", "agent.TestHalfAScopeIsPurged", "agent.TestHalfAScopeIsPurgedAtTheStart"}},
	{"F4", "a filtered stream shows which log it is of", []string{"agent.TestStreamThatCannotBeRight", "api/feedserver.TestFeedRefusesCursors"}},
	{"F5", "a stream starts in order", []string{"api/feedserver.TestFeedStartOrder", "api/feedserver.TestFeedThatFellBehind", "api/feedserver.TestFeedFollowsAnyHistory", "api/feedserver.TestFeedLeftAndBack"}},
	{"F7", "a shootdown is not lost while a cache may have the mapping", []string{"varp.TestNothingStaleInTheEnd", "varp.TestPlaceThatCameTooEarly", "varp.TestPlaceOfAnotherLog", "varp.TestAddressOfAnotherNode", "varp.TestHostileAcknowledgements", "integration.TestShootdownsOverRestarts", "agent/varpd.TestRecordWaitsForItsAnswer", "agent/varpd.TestAnswerOfAnOlderCache"}},
	{"B1", "programmed is what the kernel has, in this process", []string{"agent.TestProgrammedOnlyWhenMatched", "agent.TestProgrammedIsOfBeforeThePass", "api/liveness.TestBarrierNeverLies", "agent.TestEntryDuringAPass"}},
	{"B2", "the barrier asks all who are interested at its end", []string{"api/liveness.TestBarrierIsOfThoseAtItsEnd", "api/liveness.TestBarrierNeverLies", "api.TestBarrierOfAWholeChange"}},
	{"R1", "a consistent read knows that no newer leader was", []string{"integration/faults.TestPausedLeaderServesNothingStale", "raftstore.TestConsistentOnFollowers", "raftstore.TestNoQuorum", "integration/faults.TestSchedules"}},
	{"V1", "a service address is held by one server at a time", []string{"raftstore/internal/peer.TestConfirmedByMajority", "raftstore.TestLeaderIsConfirmed", "raftstore.TestAloneIsConfirmed", "cmd/rutter/serviceaddr.TestNeverTwoHolders", "cmd/rutter/serviceaddr.TestWhenItIsTaken", "cmd/rutter/serviceaddr.TestLateKernelOfAFormerHolder", "cmd/rutter/serviceaddr.TestWhenItIsDropped", "cmd/rutter/serviceaddr.TestSetTooLate", "cmd/rutter/serviceaddr.TestStaleProofSendsNothing", "cmd/rutter/serviceaddr.TestKernelLosesIt", "cmd/rutter/serviceaddr.TestSetAsksLast", "cmd/rutter/serviceaddr.TestSetTakesNothingOver", "cmd/rutter/serviceaddr.TestLeftovers", "cmd/rutter/serviceaddr.TestHolderDefendsIt", "integration/serviceaddr.TestHolderChanges", "integration/serviceaddr.TestHolderGivesItAway", "integration/serviceaddr.TestKilledAndStarted", "integration/serviceaddr.TestOthersHaveTheAddress", "integration/serviceaddr.TestClockOfHolder", "cmd/rutter/serve.TestServersCompareServiceAddresses", "integration/serviceaddr.TestDiskOfHolderHangs"}},
	{"A1", "whatever bytes a change has, all servers go on and agree", []string{"raftstore.FuzzChange", "raftstore.TestPoisonIsRefused", "raftstore.TestUnreadableChange", "raftstore.TestEventOverTheLimit", "raftstore.TestPanicIsARefusal", "projections/rules.TestMutatedChanges", "projections/rules.TestLimits", "projections/rules.TestResultLimit", "projections/rules.TestQuotesAreCut", "log.TestBoundedRefusal", "log.TestLimitsAreDocumented", "integration/containment.TestHugeIDsAreRefused", "integration/containment.TestUnknownFieldsAreRefused"}},
	{"A2", "a change id is bound to its content", []string{"raftstore.TestChangeIDIsBoundToItsContent", "log.TestContent", "api.TestUpdateOfVMAgain", "integration/containment.TestChangeIDUsedAgain", "api.TestWriteStreamStampsChanges"}},
	{"A3", "there is a way past an entry that stops every server", []string{"raftstore.TestSkip", "raftstore.TestSkipIsJoined", "raftstore.TestSkipChecks", "raftstore.TestSkipVoid", "raftstore.TestSkipRecover", "raftstore.TestNoSkips", "integration/containment.TestSkipAnEntry", "integration/containment.TestSkipAChange"}},
	{"T1", "no single clock moves the log's time, and an entry sets it right", []string{"raftstore.TestClockPoison", "raftstore.TestWrongClockAtStart", "raftstore.TestClocksApart", "raftstore/internal/clocks.TestStampsWithOneLiar", "raftstore/internal/clocks.TestClockSetBack", "raftstore.TestMend", "raftstore.TestMendUnderWriters", "raftstore/internal/admission.TestStampedBeforeMend", "raftstore.TestMendOfThree", "raftstore.TestMendWhileDiskHangs", "raftstore.TestHeirMayLead", "projections/rules.TestTimeIsSetByEntry", "projections/rules.TestTimeIsNotSetBefore", "integration/containment.TestLeadersClockIsWrong", "integration/containment.TestTimeIsSetRight"}},
	{"T2", "what is remembered for retries depends on no client's clock and no other author", []string{"raftstore/internal/window.TestWindowRemembers", "raftstore.TestWindowFilledFromAhead", "raftstore/internal/window.TestWindowIsTrimmedByTime", "raftstore.TestWindowAtTheRaise", "raftstore.TestSkippedIDsAreForgottenByAll", "raftstore.TestTimeSetForwardAndBack", "raftstore.TestRefusedMendIsForgotten", "raftstore.TestIDsBeyondTime", "raftstore.TestVerifyFindsLines", "raftstore/internal/window.TestWindowChangesAreOfOneEntry", "integration/containment.TestWindowFullOfIDsFromAhead"}},
	{"P6", "a disk that hangs or is full costs one server its place, and stops nothing but what grows", []string{"raftstore.TestLeaderDiskHangs", "raftstore.TestFollowerDiskHangs", "raftstore.TestDiskHangsForGood", "raftstore.TestClusterWithoutRoom", "raftstore.TestOneWithoutRoom", "raftstore.TestStartWithoutRoom", "raftstore.TestMarkerWithoutRoom", "raftstore.TestAdmit", "raftstore.TestFailedSyncIsNotTrusted", "integration/containment.TestLeaderDiskHangs", "integration/containment.TestDiskHangsForGood", "integration/containment.TestDisksFull", "integration/operate.TestRealDiskFull"}},
	{"P7", "a follower that is behind its bound is not ready", []string{"raftstore.TestFollowerLag", "raftstore/internal/peer/pipelines.TestRefusedPipelineEnds", "raftstore/internal/peer/pipelines.TestShutdownOfAStuckPipeline"}},
	{"P8", "a folder is synced after a rename, or the server ends", []string{"raftstore.TestRestoreSyncsFolder", "raftstore.TestRestoreFolderSyncFails", "raftstore.TestRebirthSyncsFolder"}},
	{"N1", "a file that a user names hangs nothing, and is not quoted", []string{"cmd/rutter.TestNamedPipes", "cmd/rutter.TestInputFromPipe", "cmd/rutter.TestErrorsQuoteNoFile"}},
	{"W1", "work is budgeted by author and tenant, writes take turns, reads end at a cursor", []string{"raftstore/internal/admission.TestTurnsOfAuthors", "raftstore/internal/admission.TestShareOfTheQueue", "raftstore.TestRefusedByTheQueueCostsNothing", "raftstore.TestWriteBudgets", "raftstore/history.TestMentions", "projections/rules.TestObjectsOfACN", "api.TestReadsEndAtTheirBudget", "api/auth/guard.TestScansTakeTurns", "integration/containment.TestTenantReadsWithinItsBudget", "integration/containment.TestMadNodeIsRefusedByName"}},
	{"I1", "which node an object is on is an operator's act, and a node confirms it", []string{"projections/rules.TestPlacementIsAnOperatorsAct", "projections/rules.TestAVMMovesWithItsNICs", "projections/rules.TestAVMMovesInTwoSteps", "projections/rules.TestANodeDoesNotChangeAnOwner", "projections/rules.TestPlacementIsGated", "integration/tls.TestTLS", "integration/lying.TestLyingCN", "integration/lying.TestStepsOfAttacks"}},
	{"I2", "a node makes NICs on networks that are open to it, at addresses that are free to all", []string{"projections/rules.TestPlacementIsAnOperatorsAct", "projections/rules.TestACNMakesNoNICOnANetworkThatItIsNotOn", "projections/rules.TestANodeNamesAPool", "projections/rules.TestAnAddressReachesOneNode", "projections/rules.TestNoAddressOfAnAgentIsChosen", "integration/tls.TestTLS", "integration/lying.TestLyingCN", "integration/lying.TestStepsOfAttacks"}},
	{"I3", "a refusal is the same for what is another's and for what is not there", []string{"projections/rules.TestACNLearnsNothingFromARefusal", "projections/rules.TestPrimaryTellsNothing", "api/triton/netreport.TestBoundReportsSeeTheirOwn", "integration/tls.TestTLS", "integration/lying.TestLyingCN", "integration/lying.TestStepsOfAttacks"}},
	{"B3", "matched means a complete view, and newer sessions are asked", []string{"agent.TestMatchedWaitsForACompletePass", "agent.TestDeltaAfterAnIncompletePass", "agent.TestMatchedAfterAFailedPass", "api/liveness.TestBarrierAsksForNewerSessions", "integration/containment.TestBarrierOfADeletedNIC", "api/liveness.TestBarrierOfAPausedLeader"}},
	{"B4", "a watermark above what was sent is a lie", []string{"api/feedserver.TestWhatACNCanKnow", "api/feedserver.TestLyingWatermark", "integration/containment.TestWatermarkThatCannotBe"}},
	{"F6", "every public position is a cursor", []string{"api.TestPositionsOfAnotherTimeline", "api.TestOpenStreamsOfAnotherTimeline", "api.TestTailForgetsAnotherLog", "varp.TestMappingsOfARebuiltServer", "integration/containment.TestPlacesOfBeforeARestore"}},
	{"R2", "an agent holds a view that takes much away", []string{"agent.TestEmptyClusterIsHeld", "agent.TestHeldFollowsTheLog", "agent.TestFirstViewIsComparedWithTheKernel", "agent.TestAcceptedDuringAPass", "agent.TestLostHoldIsNotComplete", "integration/containment.TestNodeAgainstEmptiness", "api/liveness.TestBarrierOfANodeThatHolds", "agent.TestUnjudgedRemovesNothing"}},
	{"K1", "a revocation is a place in the log, and nothing of before undoes it", []string{"projections/rules.TestRevocationIsNotUndone", "projections/rules.TestRevocationOfOneTakesItsToken", "projections/rules.TestRecordsAfterRevocation", "projections/rules.TestRevocationsOfBefore", "projections/rules.TestRevocationModel", "api/auth/enrol.TestStolenNodeStaysOut", "integration/tls.TestAwayForLong"}},
	{"K2", "a grant is decided by what it follows from", []string{"api/auth/enrol.TestRevokedIsNotRenewedByAServerBehind", "projections/rules.TestRevocationIsNotUndone"}},
	{"K3", "what ended by itself may renew, and nothing else", []string{"api/auth/tlsgate.TestEndedCertificateMayOnlyRenew", "api/auth/tlsgate.TestWeeksOfPartitions", "integration/tls.TestAwayForLong"}},
	{"K4", "what locks out the last ones is refused with what to do first", []string{"projections/rules.TestLastOperator", "projections/rules.TestRevokedAuthorIsNotTheLastOperator", "projections/rules.TestServersLeftAreAQuorum", "projections/rules.TestSingleServerIsRevokedBySerial", "projections/rules.TestLastWayIn", "api/auth/enrol.TestRevocationLeavesAQuorumAndTheCaller", "api/auth/enrol.TestRotationLeavesALiveNodeAWayIn", "integration/tls.TestAwayForLong"}},
	{"K5", "no token is on a command line", []string{"integration/tls.TestTokensAreNotOnCommandLines"}},
	{"K6", "servers compare whom they trust", []string{"integration/tls.TestAuthoritiesThatDiffer"}},
	{"B8", "own NICs programmed one by one end as a pass ends", []string{"projections/desired.TestPartsAreTheWholesDifference", "projections/desired.TestDeltaIsTheWholesDifference", "agent/link.TestPartsEndAsPasses", "agent/link.TestPartsInTheKernel", "agent.TestOwnNICNeedsNoPass", "integration.TestOwnNICWait"}},
	{"L1", "what fails for one VM or vnet of a node is its own failure", []string{"agent/link.TestOneNamespaceFailsAlone", "agent/link.TestManyBrokenNamespaces", "agent/link.TestOneVNetFailsAlone", "agent/link.TestResolversFailAlone", "agent/link.TestOrphanWithoutPowers", "agent/link.TestPausesGrowAndAreShared", "agent/link.TestMissingNamespaceIsTriedLessAndLess", "agent/link.TestNumbersOfOthersAreFreed", "agent/link.TestNamespaceHangsWhileProgrammed", "agent/link.TestCrowdedGuestThatFloods", "agent.TestFailuresAreShown", "agent.TestFailuresAreLoggedWithAPause", "agent/miss.TestPendingOfAFIFO", "integration.TestStrayVMsHoldUpNoOther"}},
	{"L2", "a barrier waits for what its change concerns, and for nothing else", []string{"api/liveness.TestBarrierOfObjects", "api/liveness.TestBarrierNeverLies", "api/liveness.TestListNamesAFew", "api/liveness.TestListsTravelOnce", "api/liveness.TestGoldenAnswers", "api/liveness.TestQueryOfEarlierVersions", "api/feedserver.TestListIsThatOfItsNumber", "api.TestConcernOfChanges", "api.TestAnswersNameObjects", "log/feed.TestBoundsOfLists", "log/feed.TestEarlierVersionsSkipTheList", "log/feed.TestListIsSentWhenItChanged", "agent.TestWhatMovesReached", "agent.TestReachedIsHonest", "agent.TestWaitsAreShown", "agent/link.TestWhatAPendingObjectConcerns", "agent/link.TestLeftOversArePending", "agent/link.TestUnfinishedPassIsNotSettled", "agent/link.TestIdleLinks", "agent/link.TestResolversConcernTheirVM", "integration.TestBarrierWaitsForItsOwn", "integration.TestVMState"}},
	{"L3", "links are owned by mark, not by name", []string{"agent/link.TestGuestRenamesItsLink", "agent/link.TestRenamesAreNoticedAndAccepted", "agent/link.TestRenameIsUndone", "agent/link.TestForeignLinkWithOurNameStays", "agent/link.TestRenamedDeviceIsOurs", "agent/link.TestKilledBeforeTheMark", "agent/link.TestForgedMarks", "agent/link.TestForeignMACIsNamed", "agent/link.TestLinksOfVersionsWithoutMarks", "agent/link.TestTwoClusters", "agent/link/plan.TestNumbersOfVersions", "agent/link/plan.TestVLANsAreKnownByMark", "agent/link/plan.TestOneLinkIsTheNICs", "agent.TestLinksBearTheMarkOfTheirCluster", "agent/link/plan.TestWhoseResolversGo", "agent/link.TestResolversAfterALostCache"}},
	{"L4", "where a link ends changes only when its source says so", []string{"agent/link.TestTapTwoNodes", "agent/link.TestTapStaysWithItsVM", "agent/link.TestTapHeals", "agent/link.TestTapByParts", "agent/link.TestTapOfAnotherProgram", "agent/link.TestTapWithoutPortSecurity", "agent/link.TestTapIsDownWithoutItsBridge", "agent/link.TestTapNameIsFreed", "agent/link.TestDeviceNames", "agent/link.TestRefusedAttachments", "agent/link.TestPartsEndAsPassesWithAttachments", "agent/link/internal/tap.TestTapIsKeptWhenComplete", "agent/link/internal/tap.TestTapOfOthersIsNotTaken", "agent/link/plan.TestTapsOfOneName", "agent/link/plan.TestAttachedNumbersFile", "agent.TestAttachmentsAreKept", "agent.TestToldBeforeTheNIC", "agent/answer.TestTapBootsByDHCP"}},
	{"R3", "an agent starts without certificate or disk", []string{"agent.TestCacheIsMadeWholeAgain", "agent.TestUnjudgedIsNotKept", "agent.TestNodeOnADiskThatHangs", "agent.TestTellingsOnADiskThatHangs", "agent.TestNothingIsTakenUnjudged", "integration/containment.TestNodeAgainstEmptiness"}},
	{"E1", "no port is up without its rules", []string{"agent/link/plan.TestPlanSecuredFromNothing", "agent/link/plan.TestPlanSecuredSettles", "agent/link.TestSecuredNotSupported", "agent/link.TestSecuredRefusedRules", "agent/link.TestPartsEndAsPassesSecured", "agent/link/plan.TestTapRulesHaveTheAddresses", "cmd/rutter/node.TestSecurityOfAFolder"}},
	{"E2", "a VM sends as itself, and what the log allows beside", []string{"agent/filter.TestFrames", "agent/filter.TestFramesPassWithoutRules", "projections/desired.TestSecurityReachesItsLink", "agent/link/plan.TestAllowedAddressesAreInTheRules", "agent/link.TestSharedAddressIsFound", "projections/rules.TestNodeDoesNotWidenWhatItsVMsAre", "integration.TestTraceNamesTheDrops", "integration.TestDemo"}},
	{"E3", "a peer is admitted before entries lead to it, and removed after", []string{"agent/filter.TestUnderlay", "agent/link.TestPeersFollowEntries", "agent/link.TestSecuredTwoNodes", "projections/desired.TestPeersOnDemand"}},
	{"E4", "nothing that a VM sends reaches the node's own stack", []string{"agent/filter.TestNothingReachesTheNode", "agent/filter.TestReservedMACsDoNotReachTheNode"}},
	{"E5", "no link of a VM is in the node's own namespace", []string{"projections/desired.TestNICBeforeItsVM", "integration/vmmove.TestVMMovesUnderPings"}},
	{"E6", "requests are answered from the log only, on the asker's network", []string{"projections/answers.TestNeighbourOfTheSameNetwork", "projections/answers.TestGuestIsAsDesired", "agent/answer.TestARPFromTheLog", "agent/answer.TestNDFromTheLog", "agent/answer.TestNoDHCPUnlessTheNetworkAsks", "agent/answer.TestAskingAsAnother", "agent/answer.TestAnswersOnAttachedLinks", "agent/filter.TestRateOfRequests", "agent/answer.TestFloodDisturbsNoOther"}},
	{"E7", "rules are compared and put right, and another's change is not overwritten unseen", []string{"agent/filter.TestHeal", "agent/filter.TestConflict", "agent/filter.TestTableOfAnother", "agent/filter.TestStateIsThatOfAModel", "agent/link.TestSecuredHeals", "agent/link.TestSecuredIsHealedFromWhatIsHeard"}},
	{"E8", "a move makes before it breaks", []string{"agent/link.TestMoveMakesBeforeItBreaks", "agent/link.TestNICMovesWithoutAGap", "integration/vmmove.TestVMMovesUnderPings"}},
}

const (
	safetyPage = "../../docs/safety.md"
	safetyMark = "<!-- rules -->\n"
)

// Each rule has tests, which exist, a heading in docs/safety.md, and a line of
// the table at that page's end.
func TestRulesOfSafety(t *testing.T) {
	if len(rules) != 64 {
		t.Errorf("%d rules, want 64", len(rules))
	}
	page, err := os.ReadFile(safetyPage)
	if err != nil {
		t.Fatal(err)
	}
	text, table, found := strings.Cut(string(page), safetyMark)
	if !found {
		t.Fatalf("docs/safety.md has no line %q", safetyMark)
	}
	for _, r := range rules {
		if !strings.Contains(text, "("+r.name+")\n") {
			t.Errorf("%s (%s) has no heading in docs/safety.md", r.name, r.what)
		}
		if len(r.tests) == 0 {
			t.Errorf("%s (%s) has no test", r.name, r.what)
		}
		for _, name := range r.tests {
			if !exists(t, name) {
				t.Errorf("%s (%s): there is no %s", r.name, r.what, name)
			}
		}
	}
	want := rulesTable()
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(safetyPage, []byte(text+safetyMark+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Error("the table at the end of docs/safety.md is not this one: RUTTER_WRITE=1 writes it anew")
	}
}

// rulesTable is rules as docs/safety.md shows them.
func rulesTable() string {
	var b strings.Builder
	b.WriteString("\n| rule | what holds | tests |\n|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", r.name, r.what, strings.Join(r.tests, "`, `"))
	}
	return b.String()
}
