package feed

import (
	"fmt"

	"rutter/log"
)

// Abilities are what a CN takes on its connection besides the stream.
type Abilities uint32

// AnswersRequests: the CN answers a Request with a Response. A CN without this ability
// is sent no request, because it would skip the frame and never answer.
const AnswersRequests Abilities = 1 << 0

// Request is a request of the server to the CN, through the CN's own connection, with
// the paths and bodies of its VMM service (spec/vmm-doorbell.md, 7.1). Requests are
// answered in any order, each once. A server has only a few unanswered at a time.
type Request struct {
	Number  uint64 // of the connection; a Response has the same
	Method  string
	Path    string // absolute, without host
	Version string // of the header api-version
	Body    []byte // at most MaxCall
}

// Response answers the Request of the same number.
type Response struct {
	Number uint64
	Status uint16 // of HTTP
	Body   []byte // JSON, at most MaxCall
}

// Ring says that the state of these VMMs may differ from the log. It does not carry the
// state: the server asks for it when it can. It is the doorbell of a CN that is
// connected.
type Ring struct{ VMMs []log.UUID }

// Inventory lists the VMs of the CN. After a connection is made, one or more frames
// (First and Last) carry the whole set. Later frames carry only what changed. Between
// First and Last there are no increments.
type Inventory struct {
	Number uint64 // of the frame within the session; only grows
	Whole  bool   // part of the whole set: a VM that none of its frames has is gone
	First  bool   // the whole set begins
	Last   bool   // the whole set is complete
	VMs    []InventoryVM
}

// InventoryVM is one VM of the CN.
type InventoryVM struct {
	UUID log.UUID
	// Object is the log.VM, as log.Encoder writes it; log.DecodeObject reads it. The
	// server ignores its server_uuid and uses the CN's. Empty: the VM is gone.
	Object []byte
}

// Flags of an Inventory.
const (
	inventoryWhole = 1 << 0
	inventoryFirst = 1 << 1
	inventoryLast  = 1 << 2
)

func (w *payloadWriter) body(b []byte) {
	if len(b) > MaxCall && w.err == nil {
		w.err = fmt.Errorf("body of %d bytes, over %d: %w", len(b), MaxCall, ErrTooLarge)
	}
	w.bytes(b)
}

func (r *payloadReader) body() []byte {
	b := r.bytes()
	if len(b) > MaxCall && r.err == nil {
		r.err = fmt.Errorf("body of %d bytes, over %d: %w", len(b), MaxCall, ErrTooLarge)
	}
	return b
}

// many writes a count, which must not exceed its bound.
func (w *payloadWriter) many(what string, n, most int) {
	if n > most && w.err == nil {
		w.err = fmt.Errorf("%d %s in one frame, over %d: %w", n, what, most, ErrTooLarge)
	}
	w.u32(uint32(n))
}

// many reads a count, and fails if it exceeds its bound.
func (r *payloadReader) many(what string, most uint32) uint32 {
	n := r.u32()
	if n > most && r.err == nil {
		r.err = fmt.Errorf("%d %s in one frame, over %d: %w", n, what, most, ErrTooLarge)
	}
	return n
}

func (m *Request) write(w *payloadWriter) {
	w.text(m.Method)
	w.text(m.Path)
	w.text(m.Version)
	w.body(m.Body)
}

func (m *Request) read(seq log.Seq, r *payloadReader) {
	m.Number = uint64(seq)
	m.Method, m.Path, m.Version = r.text(), r.text(), r.text()
	m.Body = r.body()
}

func (m *Response) write(w *payloadWriter) {
	w.u16(m.Status)
	w.body(m.Body)
}

func (m *Response) read(seq log.Seq, r *payloadReader) {
	m.Number, m.Status = uint64(seq), r.u16()
	m.Body = r.body()
}

func (m *Ring) write(w *payloadWriter) {
	w.many("VMMs", len(m.VMMs), MaxRings)
	for i := range m.VMMs {
		w.raw(m.VMMs[i][:])
	}
}

func (m *Ring) read(_ log.Seq, r *payloadReader) {
	for n := r.many("VMMs", MaxRings); n > 0 && r.err == nil; n-- {
		m.VMMs = append(m.VMMs, r.uuid())
	}
}

func (m *Inventory) write(w *payloadWriter) {
	var flags uint8
	for bit, set := range map[uint8]bool{inventoryWhole: m.Whole, inventoryFirst: m.First, inventoryLast: m.Last} {
		if set {
			flags |= bit
		}
	}
	w.u8(flags)
	w.many("VMs", len(m.VMs), MaxInventory)
	for i := range m.VMs {
		w.raw(m.VMs[i].UUID[:])
		w.bytes(m.VMs[i].Object)
	}
}

func (m *Inventory) read(seq log.Seq, r *payloadReader) {
	m.Number = uint64(seq)
	flags := r.u8()
	m.Whole, m.First, m.Last = flags&inventoryWhole != 0, flags&inventoryFirst != 0, flags&inventoryLast != 0
	for n := r.many("VMs", MaxInventory); n > 0 && r.err == nil; n-- {
		m.VMs = append(m.VMs, InventoryVM{r.uuid(), r.bytes()})
	}
}
