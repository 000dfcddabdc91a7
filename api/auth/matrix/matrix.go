package matrix

import (
	"fmt"
	"net/http"
	"net/url"
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

// NoRoute is the row of a path or method that does not exist.
const NoRoute = "no route"

// index finds rows. Requests of surfaces are found by the patterns of net/http, so that
// a row is exactly the pattern that a mux serves.
type index struct {
	rows     map[string]*Row
	surfaces map[string]*http.ServeMux
}

var matrix = newIndex(Requests(), Surfaces(), Frames(), Commands())

func newIndex(tables ...[]Row) *index {
	ix := &index{rows: make(map[string]*Row), surfaces: make(map[string]*http.ServeMux)}
	for _, rows := range tables {
		for i := range rows {
			r := &rows[i]
			if ix.rows[r.What] != nil {
				panic("access: two rows for " + r.What)
			}
			ix.rows[r.What] = r
		}
	}
	for _, r := range Surfaces() {
		surface, pattern, _ := strings.Cut(r.What, " ")
		if ix.surfaces[surface] == nil {
			ix.surfaces[surface] = http.NewServeMux()
		}
		ix.surfaces[surface].Handle(pattern, http.NotFoundHandler())
	}
	return ix
}

// Find returns the row with that name, or nil.
func Find(what string) *Row { return matrix.rows[what] }

// FindOn returns the row of a request to a surface whose own paths begin after strip;
// nil if it has none.
func FindOn(surface string, r *http.Request, strip string) *Row {
	mux := matrix.surfaces[surface]
	if mux == nil {
		return nil
	}
	path := strings.TrimPrefix(r.URL.Path, strip)
	if path == "" {
		path = "/"
	}
	at := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: path}}
	_, pattern := mux.Handler(at)
	if pattern == "" {
		return Find(NoRoute)
	}
	return matrix.rows[surface+" "+pattern]
}
