package matrix

import (
	"fmt"
	"net/http"
	"strings"
)

// Decision is what a row says about a role.
type Decision uint8

// The answers. The zero value is a refusal.
const (
	Deny   Decision = iota
	Own             // only about its own objects; the caller of Decide must check that
	Writer          // only if the identity may write (a foreign program's listener decides it)
	Allow
)

var decisionNames = [...]string{Deny: "deny", Own: "own", Writer: "writer", Allow: "allow"}

// String returns the answer's name.
func (a Decision) String() string { return decisionNames[a] }

// column is an index of a row: the roles, and a reader that is limited to tenants.
type column uint8

const (
	local column = iota
	server
	cn
	operator
	reader
	tenant // a reader whose identity has Owners
	foreign
	join
	expired
	columns
)

var columnNames = [columns]string{"local", "server", "cn", "operator", "reader", "tenant", "foreign", "join", "expired"}

// columnOf returns the column of an identity; ok is false for the role None.
func columnOf(id Identity) (c column, ok bool) {
	switch id.Role {
	case Local:
		return local, true
	case Server:
		return server, true
	case CN:
		return cn, !id.UUID.IsZero()
	case Operator:
		return operator, true
	case Reader:
		if len(id.Owners) > 0 {
			return tenant, true
		}
		return reader, true
	case Foreign:
		return foreign, true
	case Join:
		return join, true
	case Expired:
		return expired, !id.UUID.IsZero()
	}
	return 0, false
}

// Row is what each role may do with one thing.
type Row struct {
	// What is METHOD /PATTERN of a request, the direction and type of a frame, or
	// the words of a command.
	What string
	// Decisions are by column (columnNames).
	Decisions [columns]Decision
	// Own says what belongs to a compute node or a tenant, where an answer is Own.
	Own string
	// Why is the reason for the row.
	Why string
}

// cells are the answers of similar rows.
type cells [columns]Decision

// Templates of rows. A role that is not listed is refused.
var (
	// open: every client of the port.
	open = cells{local: Allow, server: Allow, cn: Allow, operator: Allow, reader: Allow, tenant: Allow, foreign: Allow, join: Allow}
	// known: every client with a certificate of the cluster, or without need of one.
	known = cells{local: Allow, server: Allow, cn: Allow, operator: Allow, reader: Allow, tenant: Allow, foreign: Allow}
	// reads of everything.
	reads = cells{local: Allow, server: Allow, operator: Allow, reader: Allow, foreign: Allow}
	// ownReads: of objects, filtered for identities that may not see all.
	ownReads = reads.with(cn, Own).with(tenant, Own)
	// writes of objects.
	writes = cells{local: Allow, operator: Allow, foreign: Writer}
	// ownWrites: of objects, which the servers decide again by Author.
	ownWrites = writes.with(cn, Own)
	// rules: of the cluster itself.
	rules = cells{local: Allow, operator: Allow}
)

func (c cells) with(at column, a Decision) cells {
	c[at] = a
	return c
}

// For returns what the row says about an identity.
func (r *Row) For(id Identity) Decision {
	at, ok := columnOf(id)
	if !ok {
		return Deny
	}
	a := r.Decisions[at]
	if a == Writer {
		if id.Write {
			return Allow
		}
		return Deny
	}
	return a
}

// Refusal says who was refused what, and what is missing. It is an error.
type Refusal struct {
	Who  Identity
	What string
	// Missing is what would be needed, in words.
	Missing string
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s may not %s: %s", r.Who.Actor(), r.What, r.Missing)
}

// Decide returns Allow, or Own, or a refusal that names what is missing. If row is nil,
// only a local identity is allowed.
func Decide(id Identity, what string, row *Row) (Decision, *Refusal) {
	if row == nil {
		if id.Role == Local {
			return Allow, nil
		}
		return Deny, &Refusal{Who: id, What: what, Missing: "the matrix has no row for this; ask for a new release"}
	}
	if a := row.For(id); a != Deny {
		return a, nil
	}
	return Deny, &Refusal{Who: id, What: what, Missing: row.missing(id)}
}

// missing names the roles that are allowed.
func (r *Row) missing(id Identity) string {
	if id.Role == Foreign && r.Decisions[foreign] == Writer {
		return "this listener lets programs of this address read only"
	}
	var roles []string
	for at, a := range r.Decisions {
		if a == Allow && column(at) != local && column(at) != join && column(at) != expired && column(at) != tenant {
			roles = append(roles, columnNames[at])
		}
	}
	if id.Role == Expired {
		return "the certificate has ended: renew it (POST /pki/renew), which an agent does by itself"
	}
	if len(roles) == 0 {
		return "nobody may, on this listener"
	}
	return "it takes a certificate with the role " + strings.Join(roles, " or ")
}

// Names of rows of requests that match no route.
const (
	NoRoute = "no route" // a path or method that does not exist
	// Malformed is a request that is refused before it is routed: its path has two
	// readings, or a web page of another site caused it.
	Malformed = "malformed"
)

// Writes reports whether the row is of a request that may change something. GET /write
// does, for example.
func (r *Row) Writes() bool {
	if r.Decisions[foreign] == Writer {
		return true
	}
	for word := range strings.FieldsSeq(r.What) {
		switch word {
		case http.MethodPost, http.MethodPut, http.MethodDelete:
			return true
		}
	}
	return false
}

// named finds rows by their names.
var named = newIndex(Requests(), Surfaces(), Frames(), Commands())

func newIndex(tables ...[]Row) map[string]*Row {
	index := make(map[string]*Row)
	for _, table := range tables {
		for i := range table {
			r := &table[i]
			if index[r.What] != nil {
				panic("access: two rows for " + r.What)
			}
			index[r.What] = r
		}
	}
	return index
}

// Find returns the row with that name, or nil.
func Find(what string) *Row { return named[what] }
