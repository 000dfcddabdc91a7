package coverage

// Names of states that package world counts while a history runs, because its log does not show
// them.
const (
	SnapshotInstalled = "snapshot_installed"
	SnapshotFeeding   = "snapshot_feeding"
	RestartInWrite    = "restart_in_write"
	FloorRaised       = "floor_raised"
	FloorWhileAway    = "floor_while_away"
	ScopeSnapshot     = "scope_snapshot"
	HalfScope         = "half_scope"
	ClockAlarm        = "clock_alarm"
	DiskAlarm         = "disk_alarm"
	DiskStalled       = "disk_stalled"
	MemberChange      = "member_change"
	Rebuilt           = "rebuilt"
	CacheRebuilt      = "cache_rebuilt"
	StepRefused       = "step_refused"
	DriftMended       = "drift_mended"
	LieRefused        = "lie_refused"
	CertificateNew    = "certificate_new"
	OlderRefused      = "older_refused"
	ConnectionReset   = "connection_reset"
	SVPWhileDown      = "svp_while_servers_down"
	ChangefeedAgain   = "changefeed_reconnected"
	StreamAwaited     = "stream_await"
	ReportRetried     = "netsync_report_retried"
	FolderSpoiled     = "certificates_spoiled"
	FolderHealed      = "certificates_healed"
	FolderMended      = "certificates_mended"
	ReplicaFeeds      = "replica_feeds"
	ReplicaLagged     = "replica_lagged"
	ReplicaLeft       = "replica_left"
	ReplicaPromoted   = "replica_promoted"
	ReplicaAgain      = "replica_again"
)

// Names of states that Count takes from the log of what was seen.
const (
	LeaderChange     = "leader_change"
	ElectionInWrites = "election_in_writes"
	TwoLeaders       = "two_leaders"
	NoLeader         = "no_leader"
	Restart          = "restart"
	ColdStart        = "cold_start"
	AllDown          = "all_down"
	AgentRestart     = "agent_restart"
	EpochChange      = "epoch_change"
	WriteUnknown     = "write_unknown"
	Deduped          = "deduped"
	Refusal          = "refusal"
	NotTaken         = "not_taken"
	StreamResumed    = "stream_resumed"
	StreamTooOld     = "stream_too_old"
	StreamOtherLog   = "stream_other_log"
	BarrierDone      = "barrier_done"
	BarrierTimeout   = "barrier_timeout"
	ReplicasDown     = "replicas_down"
	ReplicaRead      = "replica_read"
	ReadFailed       = "read_failed"
	NotReady         = "not_ready"
	Behind           = "behind"
	AgentHalf        = "agent_half"
	AgentBehind      = "agent_behind"
	PowerCut         = "power_cut"
	FaultsTogether   = "faults_together"
)

// States are all of them, in the order of the table. A state is no goal if nothing says that
// it must occur in a night: it depends on luck, or is a sign of something else.
var States = []State{
	{LeaderChange, "another server leads than before", true},
	{ElectionInWrites, "a leader changed while a write was on its way", true},
	{TwoLeaders, "two servers believed at the same time that they lead, in different terms", true},
	{NoLeader, "no server led, at a look", true},
	{Restart, "a server started again", true},
	{ColdStart, "a server started while no other ran", true},
	{AllDown, "no server ran", true},
	{RestartInWrite, "a server ended while a transaction was under way", true},
	{PowerCut, "a server lost its power", true},
	{AgentRestart, "an agent started again", true},
	{SnapshotInstalled, "a follower got a snapshot", true},
	{SnapshotFeeding, "a snapshot was installed while subscribers were fed", true},
	{Rebuilt, "a server's state was replaced by another's", false},
	{EpochChange, "the cluster was restored from a backup", true},
	{FloorRaised, "the log's floor rose", true},
	{FloorWhileAway, "the log's floor passed the place of an agent that was away", true},
	{ScopeSnapshot, "an agent took a scope as a snapshot again", true},
	{HalfScope, "a connection ended in the middle of a scope", true},
	{AgentHalf, "an agent's view was not complete, at a look", true},
	{AgentBehind, "an agent was behind the head, at a look", true},
	{CacheRebuilt, "an agent's cache was damaged or lost", true},
	{ClockAlarm, "servers reported a wrong clock", true},
	{DiskAlarm, "servers reported little room", true},
	{DiskStalled, "a server gave up because its disk hung", true},
	{NotReady, "a server said that it is not ready, at a look", true},
	{Behind, "changes.db was behind the state, at a look", true},
	{WriteUnknown, "a client did not know the outcome of a write", true},
	{Deduped, "a write that was sent again had been done already", true},
	{Refusal, "a change was refused", true},
	{NotTaken, "a server said that it took nothing", true},
	{ReadFailed, "a read had no answer", true},
	{StreamResumed, "a stream went on where it had ended", true},
	{StreamTooOld, "a stream was refused because its place is below the floor", true},
	{StreamOtherLog, "a stream was refused because its place is of another log", true},
	{BarrierDone, "a wait for compute nodes was answered", true},
	{BarrierTimeout, "a wait for compute nodes ended by its time", true},
	{MemberChange, "a server left or joined", true},
	{StepRefused, "a kernel refused a step", true},
	{DriftMended, "a kernel that another program had changed was put right", true},
	{LieRefused, "an agent was refused what is not its own", true},
	{CertificateNew, "a machine got a new certificate", false},
	{FolderSpoiled, "a file of a folder of certificates was damaged", true},
	{FolderHealed, "a machine whose folder was damaged had others by itself", true},
	{FolderMended, "an operator issued certificates for a machine whose folder was damaged", true},
	{OlderRefused, "an older program refused to start", false},
	{ConnectionReset, "a connection was reset", false},
	{SVPWhileDown, "a compute node answered a lookup while no server ran", true},
	{ChangefeedAgain, "a listener of the change feed went on at another server", true},
	{StreamAwaited, "compute nodes had what was written over a write stream, as its client was told", true},
	{ReportRetried, "a compute node sent a change of its NICs again, because it had no answer", true},
	{ReplicaFeeds, "a server without a vote began to feed a compute node", true},
	{ReplicaRead, "a server without a vote answered a read", true},
	{ReplicaLagged, "a server without a vote was too far behind, and said so", true},
	{ReplicaLeft, "a compute node left a server without a vote because that was too far behind", true},
	{ReplicasDown, "no server without a vote ran in a history that has some", true},
	{ReplicaPromoted, "a server without a vote was given one", true},
	{ReplicaAgain, "a server that was given a vote became a replica again", true},
	{FaultsTogether, "three or more faults were under way at the same time", true},
}
