package matrix

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Answer is what a row says to a role.
type Answer uint8

// The answers. The zero value is a refusal.
const (
	Deny   Answer = iota
	Own           // only about what is its own, which whoever asks must see to
	Writer        // only if the identity may write (a foreign program's listener says so)
	Allow
)

var answerNames = [...]string{Deny: "deny", Own: "own", Writer: "writer", Allow: "allow"}

// String returns the answer's name.
func (a Answer) String() string { return answerNames[a] }

// column is a place in a row: the roles, and a reader that is limited to tenants.
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
	columns
)

var columnNames = [columns]string{"local", "server", "cn", "operator", "reader", "tenant", "foreign", "join"}

// columnOf returns where an identity looks; ok is false for nobody.
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
	}
	return 0, false
}

// Row is what each role may do with one thing.
type Row struct {
	// What is METHOD /PATTERN of a request, the direction and type of a frame, or
	// the words of a command.
	What string
	// Answers are by column (columnNames).
	Answers [columns]Answer
	// Own says what is a compute node's own, or a tenant's, where an answer is Own.
	Own string
	// Why says what the row is so for.
	Why string
}

// cells are the answers of rows that are alike.
type cells [columns]Answer

// Templates of rows. A role that is not named is refused.
var (
	// open: whoever reached the port.
	open = cells{local: Allow, server: Allow, cn: Allow, operator: Allow, reader: Allow, tenant: Allow, foreign: Allow, join: Allow}
	// known: whoever has a certificate of the cluster, or needs none.
	known = cells{local: Allow, server: Allow, cn: Allow, operator: Allow, reader: Allow, tenant: Allow, foreign: Allow}
	// reads of everything.
	reads = cells{local: Allow, server: Allow, operator: Allow, reader: Allow, foreign: Allow}
	// ownReads: of objects, filtered for those who may not see all.
	ownReads = reads.with(cn, Own).with(tenant, Own)
	// writes of objects.
	writes = cells{local: Allow, operator: Allow, foreign: Writer}
	// ownWrites: of objects, which the log decides again by Author.
	ownWrites = writes.with(cn, Own)
	// rules: of the cluster itself.
	rules = cells{local: Allow, operator: Allow}
)

func (c cells) with(at column, a Answer) cells {
	c[at] = a
	return c
}

// For returns what the row says to an identity.
func (r *Row) For(id Identity) Answer {
	at, ok := columnOf(id)
	if !ok {
		return Deny
	}
	a := r.Answers[at]
	if a == Writer {
		if id.Write {
			return Allow
		}
		return Deny
	}
	return a
}

// Refusal says who was refused what, and what they miss. It is an error.
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

// Decide asks the matrix about something that has a row: Allow, or Own, or a
// refusal that names what is missing. What has no row is refused to everybody
// but those who need no name.
func Decide(id Identity, what string, row *Row) (Answer, *Refusal) {
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

// missing names the roles that would do.
func (r *Row) missing(id Identity) string {
	if id.Role == Foreign && r.Answers[foreign] == Writer {
		return "this listener lets programs of this address read only"
	}
	var roles []string
	for at, a := range r.Answers {
		if a == Allow && column(at) != local && column(at) != join && column(at) != tenant {
			roles = append(roles, columnNames[at])
		}
	}
	if len(roles) == 0 {
		return "nobody may, on this listener"
	}
	return "it takes a certificate with the role " + strings.Join(roles, " or ")
}

// NoRoute is the row of a path or method that there is not.
const NoRoute = "no route"

// index finds rows. Requests of surfaces are found by the patterns of net/http, so
// that a row is the very pattern that a mux serves.
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

// FindOn returns the row of a request to a surface, whose own paths begin after
// strip; nil if it has none.
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
