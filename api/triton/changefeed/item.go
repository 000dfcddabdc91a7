package changefeed

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"rutter/log"
)

// item is the form of an entry for listeners, made once for all of them.
type item struct {
	cursor log.Cursor // after the entry
	// resource is "" if the entry can concern no listener.
	resource string
	subs     []string // sorted
	// also are further items of the entry: of the VMs whose NIC it is.
	also []*item
	// Of items of VMs: the time that they have, in milliseconds since 1970, and of those
	// of NICs the VM's id.
	published int64
	vm        string

	encoding sync.Once
	event    *log.Event // until it was encoded
	plain    []byte     // the JSON form
	err      error      // of encoding

	placing    sync.Once
	cursorText []byte // the JSON form with the cursor
	cursorErr  error
}

// head is the part of an item that names what happened.
type head struct {
	ChangeKind struct {
		Resource     string   `json:"resource"`
		SubResources []string `json:"subResources"`
	} `json:"changeKind"`
	ChangedResourceID string `json:"changedResourceId"`
	// Published is the time of the change in milliseconds since 1970, in text.
	Published string `json:"published"`
}

// newItem makes the item of an entry of cluster's log.
func newItem(cluster log.UUID, e log.Entry, stamps *stamps) (*item, error) {
	it := &item{cursor: log.Cursor{Cluster: cluster, Seq: e.Seq, Chain: e.Hash.Prefix()}}
	view, err := log.DecodeEventHead(e.Bytes)
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	if _, ok := extrasOf(view.Kind); !ok {
		return it, nil
	}
	event, err := e.Event()
	if err != nil {
		return nil, err
	}
	it.subs = subResources(event)
	it.addVM(event, stamps)
	if len(it.subs) > 0 {
		it.resource, it.event = event.Kind.String(), event
	}
	return it, nil
}

// subResources names what happened to the object: create, delete, or the fields that
// really changed, independent of the request.
func subResources(event *log.Event) []string {
	switch event.Action {
	case log.Create:
		return []string{subCreate}
	case log.Delete:
		return []string{subDelete}
	}
	var subs, kept []string
	for _, c := range event.Changed {
		if notTritons(c.Path) {
			continue
		}
		if isBookkeeping(c.Path) {
			kept = append(kept, c.Path)
			continue
		}
		subs = append(subs, c.Path)
	}
	if len(subs) == 0 {
		subs = kept
	}
	slices.Sort(subs)
	return subs
}

// encode prints an item: changeKind, changedResourceId and published as sdc-changefeed
// has them, NAPI's additional fields for the kind, the entity tag unless it was
// deleted, and the seq, which old listeners ignore.
func encode(seq log.Seq, event *log.Event, subs, extras []string) ([]byte, error) {
	var h head
	h.ChangeKind.Resource, h.ChangeKind.SubResources = event.Kind.String(), subs
	h.ChangedResourceID = event.ID
	h.Published = strconv.FormatInt(int64(event.Time)/int64(time.Millisecond), 10)
	b, err := json.Marshal(&h)
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", seq, err)
	}
	b = b[:len(b)-1] // without the brace
	for _, name := range extras {
		value, ok := log.Field(event.Object, name)
		if !ok || value == nil {
			continue
		}
		if b, err = appendField(b, name, value); err != nil {
			return nil, fmt.Errorf("seq %d: %w", seq, err)
		}
	}
	if event.Action != log.Delete {
		if b, err = appendField(b, "etag", log.ETag(event.Revision, seq)); err != nil {
			return nil, fmt.Errorf("seq %d: %w", seq, err)
		}
	}
	b, err = appendField(b, "seq", uint64(seq))
	return append(b, '}'), err
}

// appendField appends a field to an object that has some and is still open.
func appendField(b []byte, name string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return append(b, text...), nil
}

// text returns the item as it is sent, with the cursor for listeners that asked for
// cursors.
// A nil text is not sent.
func (it *item) text(placed bool, object func(id log.UUID, vm *log.VM) map[string]any) ([]byte, error) {
	it.encoding.Do(func() {
		if it.resource == log.KindVM.String() {
			it.plain, it.err = it.encodeVM(object)
		} else {
			extras, _ := extrasOf(it.event.Kind)
			it.plain, it.err = encode(it.cursor.Seq, it.event, it.subs, extras)
		}
		it.event = nil
	})
	if it.err != nil || !placed || it.plain == nil {
		return it.plain, it.err
	}
	it.placing.Do(func() {
		b := append(make([]byte, 0, len(it.plain)+100), it.plain[:len(it.plain)-1]...)
		it.cursorText, it.cursorErr = appendField(b, "cursor", it.cursor)
		it.cursorText = append(it.cursorText, '}')
	})
	return it.cursorText, it.cursorErr
}

// interest is what a registration asks of one resource.
type interest struct {
	Resource     string   `json:"resource"`
	SubResources []string `json:"subResources"`
}

// wants reports whether the item shares a subresource with it.
func (n *interest) wants(it *item) bool {
	if n.Resource != it.resource {
		return false
	}
	for _, sub := range it.subs {
		if slices.Contains(n.SubResources, sub) {
			return true
		}
	}
	return false
}
