package log

// The status of a task. A task that is complete or a failure stays so.
const (
	TaskQueued   = "queued" // for its CN; nobody has begun it
	TaskActive   = "active" // claimed: it is being done, or nobody knows
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

// Kind implements Object.
func (*Task) Kind() Kind { return KindTask }

// ID implements Object: the task's UUID.
func (t *Task) ID() string { return t.UUID.String() }

// Ended reports whether the task is complete or a failure.
func (t *Task) Ended() bool { return t.Status == TaskComplete || t.Status == TaskFailure }

func (t *Task) visit(v visitor) {
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
}

// The status of a ticket. One that is finished or expired stays so.
const (
	TicketQueued   = "queued"
	TicketActive   = "active" // it is its holder's turn
	TicketFinished = "finished"
	TicketExpired  = "expired"
)

// Ticket is a place in the line of those who want to act on one thing of a CN:
// of the tickets with equal server_uuid, scope and id, one is active at a time.
// Field names: CNAPI's waitlist (spec/cnapi.md section 4.4).
type Ticket struct {
	UUID       UUID   `json:"uuid"` // the id of the object
	ServerUUID UUID   `json:"server_uuid"`
	Scope      string `json:"scope"` // vm, …
	OfID       string `json:"id"`    // what it is for, within the scope
	Action     string `json:"action,omitempty"`
	ReqID      string `json:"reqid,omitempty"`
	Extra      string `json:"extra,omitempty"` // JSON, in text
	Status     string `json:"status"`
	Place      uint64 `json:"place"` // in the line: the lowest that waits is next
	Created    Time   `json:"created_at"`
	Updated    Time   `json:"updated_at"`
	Expires    Time   `json:"expires_at"`
	extra
}

// Kind implements Object.
func (*Ticket) Kind() Kind { return KindTicket }

// ID implements Object: the ticket's UUID.
func (t *Ticket) ID() string { return t.UUID.String() }

// Waits reports whether the ticket stands in its line: queued or active.
func (t *Ticket) Waits() bool { return t.Status == TicketQueued || t.Status == TicketActive }

func (t *Ticket) visit(v visitor) {
	v.uuid("uuid", &t.UUID)
	v.uuid("server_uuid", &t.ServerUUID)
	v.str("scope", &t.Scope)
	v.str("id", &t.OfID)
	v.str("action", &t.Action)
	v.str("reqid", &t.ReqID)
	v.str("extra", &t.Extra)
	v.str("status", &t.Status)
	v.u64("place", &t.Place)
	v.time("created_at", &t.Created)
	v.time("updated_at", &t.Updated)
	v.time("expires_at", &t.Expires)
}
