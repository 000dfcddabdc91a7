package log

// KindTask is the kind of tasks.
const KindTask Kind = 13

// The status of a task. A task that is complete or a failure stays so.
const (
	TaskQueued   = "queued" // for its CN; not begun
	TaskActive   = "active" // claimed: it is being done, or its fate is unknown
	TaskComplete = "complete"
	TaskFailure  = "failure"
)

// How a task comes to its CN.
const (
	ViaFeed = "feed" // to an agent of ours, which claims it
	ViaHTTP = "http" // by a server, which claims it, to the CN's own HTTP service
)

// Task is something that a CN is asked to do once. Who does it claims it first,
// by an update that sets claimed_by; only that one can finish it, or a later
// incarnation of it, which can only say that it was interrupted. Field names:
// CNAPI (spec/cnapi.md section 4.4) as far as it has them.
type Task struct {
	UUID       UUID     `json:"id"`               // the id
	ReqID      string   `json:"req_id,omitempty"` // of the request that made it
	Task       string   `json:"task"`             // what is to be done: nop, machine_start, …
	Params     string   `json:"params,omitempty"` // a JSON object, in text
	ServerUUID UUID     `json:"server_uuid"`      // the CN
	Status     string   `json:"status"`
	Via        string   `json:"via"`
	Created    Time     `json:"created"`
	Deadline   Time     `json:"deadline"`             // when it is given up
	Timeout    uint64   `json:"timeout"`              // seconds from Created to Deadline
	ClaimedBy  uint64   `json:"claimed_by,omitempty"` // the incarnation of who does it
	Claimant   string   `json:"claimant,omitempty"`   // the server that does it, of a task via http
	Started    Time     `json:"started,omitzero"`     // when it was claimed
	Finished   Time     `json:"finished,omitzero"`
	Failure    string   `json:"failure,omitempty"` // why, of one that failed
	Result     string   `json:"result,omitempty"`  // JSON, in text
	History    []string `json:"history,omitempty"` // JSON objects {name, timestamp, event}, in text
	extra
}

// taskKind is the row of tasks in the table of kinds.
var taskKind = kind{
	Description: Description{
		Name: "task", Noun: "task", Title: "Task",
		IDField: "id", IDForm: IDUUID,
		Immutable: []string{"id", "req_id", "task", "params", "server_uuid", "via", "created", "deadline", "timeout", "started", "finished"},
		Final:     "a task records what was asked of a compute node, and what came of it",
		CN: &Rights{
			Update: []string{"claimed_by", "failure", "history", "result", "status"},
			Why:    "it claims what it is asked to do, and tells how that went",
		},
	},
	docs: []FieldDoc{
		{Name: "id", Text: "The id of the task.", Default: "one that the servers choose"},
		{Name: "req_id", Text: "The id of the request that made it.", Default: "none"},
		{Name: "task", Text: "What is to be done, as in machine_start."},
		{Name: "params", Text: "With what it is to be done.", Default: "none", JSON: true},
		{Name: "server_uuid", Text: "The compute node that does it.", Refers: KindServer},
		{Name: "status", Text: "How far it is.", Values: []string{"queued", "active", "complete", "failure"}, By: SetByNodes},
		{Name: "via", Text: "How it comes to its compute node.", Default: "feed", Values: []string{"feed", "http"}},
		{Name: "created", Text: "When it was made.", By: SetByDeciding},
		{Name: "deadline", Text: "When it is given up.", By: SetByDeciding},
		{Name: "timeout", Text: "How long it may take.", Unit: "seconds", Default: "3600"},
		{Name: "claimed_by", Text: "The incarnation of the program that does it.", By: SetByNodes},
		{Name: "claimant", Text: "The server that does it, of a task via http.", By: SetByNodes},
		{Name: "started", Text: "When it was claimed.", By: SetByDeciding},
		{Name: "finished", Text: "When it ended.", By: SetByDeciding},
		{Name: "failure", Text: "Why it failed.", By: SetByNodes},
		{Name: "result", Text: "What came of it.", By: SetByNodes, JSON: true},
		{Name: "history", Text: "What happened on the way, each a JSON object.", By: SetByNodes},
	},
	fields: fields[Task](func(t *Task, v visitor) {
		v.uuid("id", &t.UUID)
		v.str("req_id", &t.ReqID)
		v.str("task", &t.Task)
		v.str("params", &t.Params)
		v.uuid("server_uuid", &t.ServerUUID)
		v.str("status", &t.Status)
		v.str("via", &t.Via)
		v.time("created", &t.Created)
		v.time("deadline", &t.Deadline)
		v.u64("timeout", &t.Timeout)
		v.u64("claimed_by", &t.ClaimedBy)
		v.str("claimant", &t.Claimant)
		v.time("started", &t.Started)
		v.time("finished", &t.Finished)
		v.str("failure", &t.Failure)
		v.str("result", &t.Result)
		v.strs("history", &t.History)
	}),
	scope: scopes[Task](func(t *Task) Scope { return onCN(t.ServerUUID) }),
}

// Kind implements Object.
func (*Task) Kind() Kind { return KindTask }

// ID implements Object: the task's UUID.
func (t *Task) ID() string { return t.UUID.String() }

// Ended reports whether the task is complete or a failure.
func (t *Task) Ended() bool { return t.Status == TaskComplete || t.Status == TaskFailure }
