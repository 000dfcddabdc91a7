package documents

import (
	"rutter/log"
	"rutter/projections"
)

// Object is the object that a document means.
type Object struct {
	Document Document
	// Object has its id and the fields that the document speaks of, whose JSON names are
	// Set, sorted.
	Object log.Object
	Set    []string
	// Has is what the state has of it; its Object is nil if there is none.
	Has projections.Record
}

// Resolve finds the object that each document means: by its UUID, else by its name; a NIC
// without a MAC by what it belongs to and its network. It turns names into ids, also of
// objects that other documents of the set declare. The order of the documents stays. The
// error is Problems, which names all that is wrong.
func Resolve(state *projections.State, docs []Document) ([]*Object, error) {
	r := newResolver(state, docs)
	r.identify()
	objects := r.objects()
	return objects, r.problems.orNil()
}
