package log

// KindTicket is the kind of tickets.
const KindTicket Kind = 18

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
	UUID       UUID   `json:"uuid"`        // the id of the object
	ServerUUID UUID   `json:"server_uuid"` // zero: of no server, which CNAPI calls default; from FeatureTriton on
	Scope      string `json:"scope"`       // vm, …
	OfID       string `json:"id"`          // what it is for, within the scope
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

// ticketKind is the row of tickets in the table of kinds.
var ticketKind = kind{
	Description: Description{
		Name: "ticket", Noun: "ticket", Title: "Ticket",
		IDField: "uuid", IDForm: IDUUID,
		Immutable: []string{"uuid", "server_uuid", "scope", "id", "place", "created_at", "updated_at"},
		Final:     "a ticket is a place in a line, and its turn does not come again",
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the ticket.", Default: "one that the servers choose"},
		{Name: "server_uuid", Text: "The compute node that it is about; none: no server.", Default: "none", Refers: KindServer},
		{Name: "scope", Text: "What kind of thing it is for, as in vm."},
		{Name: "id", Text: "The thing that it is for."},
		{Name: "action", Text: "What its holder wants to do.", Default: "none"},
		{Name: "reqid", Text: "The id of the request that made it.", Default: "none"},
		{Name: "extra", Text: "What its holder wants to keep with it.", Default: "none", JSON: true},
		{Name: "status", Text: "Whose turn it is.", Default: "queued", Values: []string{"queued", "active", "finished", "expired"}},
		{Name: "place", Text: "Its place in the line: the lowest that waits is next.", By: SetByDeciding},
		{Name: "created_at", Text: "When it was made.", By: SetByDeciding},
		{Name: "updated_at", Text: "When it last changed.", By: SetByDeciding},
		{Name: "expires_at", Text: "When it ends by itself."},
	},
	fields: fields[Ticket](func(t *Ticket, v visitor) {
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
	}),
}

// Kind implements Object.
func (*Ticket) Kind() Kind { return KindTicket }

// ID implements Object: the ticket's UUID.
func (t *Ticket) ID() string { return t.UUID.String() }

// Waits reports whether the ticket stands in its line: queued or active.
func (t *Ticket) Waits() bool { return t.Status == TicketQueued || t.Status == TicketActive }
