package backend

import (
	"net/http"
	"strconv"
	"strings"

	"rutter/api/auth/guard"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// HeaderID has the id of the object that a path named in another way.
const HeaderID = "Rutter-Id"

// CodeAmbiguous is the answer, 409, to a name that several objects have.
const CodeAmbiguous = "AmbiguousName"

// Find returns the objects of kinds that a text names, of those that the request may see:
// in the present state, or with the query's at in a past one.
func (v *Reader) Find(w http.ResponseWriter, r *http.Request, p rest.Parameters, kinds []log.Kind, text string) (found naming.Found, err error) {
	part := PastPart{Kinds: kinds}
	for _, kind := range kinds {
		if kind == log.KindNIC || kind == log.KindVM || kind == log.KindVMM {
			part = PastPart{Whole: true} // by their names there is no index of the past
		}
	}
	err = v.ViewAt(w, r, p, part, func(state *projections.State) {
		grant := guard.GrantOf(r)
		found = naming.Resolve(state, kinds, text, func(o log.Object) bool { return grant.Sees(state, o) })
	})
	return found, err
}

// Named returns the one object of a kind that a text names, and puts its id into the
// answer's header. It is resolved in this server's state; a write is decided with the id,
// under the condition that the object has not changed since. Errors are answers: 422 if
// nothing has the name, 409 with the candidates if several have it.
func (v *Reader) Named(w http.ResponseWriter, r *http.Request, p rest.Parameters, kind log.Kind, text string) (m naming.Match, err error) {
	if id, is := naming.IsID(kind, text); is {
		return naming.Match{Kind: kind, ID: id, By: "id"}, nil
	}
	if err := v.Fresh(r, p); err != nil {
		return m, err
	}
	found, err := v.Find(w, r, p, []log.Kind{kind}, text)
	if err != nil {
		return m, err
	}
	d := kind.Describe()
	switch len(found.Matches) {
	case 0:
		form := "a UUID of 36 characters"
		if d.IDForm == log.IDMAC {
			form = "a MAC address, as in 90:b8:d0:01:02:03"
		}
		return m, rest.BadParameter(d.IDField, log.ElementInvalid, "send "+form+", or a name, an address or the beginning of an id that is there", "no %s is named %q", d.Noun, text)
	case 1:
		w.Header().Set(HeaderID, found.Matches[0].ID)
		return found.Matches[0], nil
	}
	return m, ambiguous(d.Noun, text, found)
}

func ambiguous(noun, text string, found naming.Found) *rest.Error {
	many := strconv.Itoa(len(found.Matches))
	if found.More {
		many = "more than " + many
	}
	ids := make([]string, len(found.Matches))
	for i, m := range found.Matches {
		ids[i] = m.ID
	}
	e := rest.Fail(http.StatusConflict, CodeAmbiguous, "send the id of one of them: "+strings.Join(ids, ", "), "%q names %s objects of kind %s", text, many, noun)
	e.Candidates = found.Matches
	return e
}

// Unchanged makes an operation on an object that was found by a name conditional: it is
// refused (412) if the object has changed since then, and so may not have the name any
// more. A condition of the client stays.
func Unchanged(op *log.Op, m naming.Match) error {
	if m.ETag == "" || op.IfMatch != 0 || op.IfSeq != 0 {
		return nil
	}
	var err error
	op.IfMatch, op.IfSeq, err = log.ParseETag(m.ETag)
	return err
}
