package feed

import (
	"fmt"

	"rutter/log"
)

// Bounds of the list of a Watermark.
const (
	// MaxWaits bounds the objects of one list: the links of 1,000 VMs of four NICs each. A
	// CN with more sends none, and only Programmed counts.
	MaxWaits = 4096
	// MaxWaitText bounds the text of one object, and MaxWaitTexts those of one list, in
	// bytes. What is over is cut, or left out.
	MaxWaitText  = 240
	MaxWaitTexts = 64 << 10
)

// WaitKind says which changes an object concerns that is not as the log wants it. The
// numbers are on the wire and never change. A reader takes a kind that it does not know
// for WaitNode.
type WaitKind uint8

// The kinds of Wait.
const (
	WaitNode  WaitKind = 1 // each change of the CN
	WaitVNet  WaitKind = 2 // each change of a vnet: its device, or a forwarding entry
	WaitNIC   WaitKind = 3 // the link of a NIC, and what is on it
	WaitEntry WaitKind = 4 // an entry on the link of NIC about Peer
)

// Wait is an object that the CN's kernel does not have as the log wants it.
type Wait struct {
	Kind WaitKind
	// Idle: it cannot be there, because its VM is not to run. No barrier waits for it.
	Idle bool
	VNet uint32  // of WaitVNet, WaitNIC and WaitEntry; 0 is also unknown
	NIC  log.MAC // of WaitNIC and WaitEntry
	Peer log.MAC // of WaitEntry
	VM   log.UUID
	// RetryAt is the time of the next try, in seconds since 1970; 0: with the next pass.
	RetryAt uint32
	Why     string // the object and the cause; may be empty
}

// String says what is missing and why.
func (w *Wait) String() string {
	why := w.Why
	switch {
	case why != "":
	case w.Idle:
		why = fmt.Sprintf("fabric link of %s: its VM %s is not to run, and has no network namespace", w.NIC, w.VM)
	case w.Kind == WaitNIC && !w.VM.IsZero():
		why = fmt.Sprintf("fabric link of %s of VM %s", w.NIC, w.VM)
	case w.Kind == WaitNIC:
		why = "fabric link of " + w.NIC.String()
	case w.Kind == WaitEntry:
		why = fmt.Sprintf("entry of %s on the link of %s", w.Peer, w.NIC)
	case w.Kind == WaitVNet:
		why = fmt.Sprintf("vnet %d", w.VNet)
	default:
		why = "an object that this program does not know"
	}
	return why
}

// waitBytes is the length of a Wait without its text: kind u8, flags u8, vnet u32, nic 6,
// peer 6, vm 16, retry u32, length of the text u16.
const waitBytes = 1 + 1 + 4 + 6 + 6 + 16 + 4 + 2

const flagIdle = 1 << 0

// WaitsBytes is the length of a list on the wire, at most.
func WaitsBytes(list []Wait) int {
	n := len(list) * waitBytes
	for i := range list {
		n += len(list[i].Why)
	}
	return n
}

// AppendWaits appends a list: count u32, then for each object what waitBytes says and the
// text. Objects over MaxWaits are a mistake of the caller: ErrTooLarge.
func AppendWaits(b []byte, list []Wait) ([]byte, error) {
	if len(list) > MaxWaits {
		return b, fmt.Errorf("list of %d objects, over %d: %w", len(list), MaxWaits, ErrTooLarge)
	}
	w := payloadWriter{b: b}
	w.u32(uint32(len(list)))
	left := MaxWaitTexts
	for i := range list {
		x := &list[i]
		w.u8(uint8(x.Kind))
		flags := uint8(0)
		if x.Idle {
			flags = flagIdle
		}
		w.u8(flags)
		w.u32(x.VNet)
		w.raw(x.NIC[:])
		w.raw(x.Peer[:])
		w.raw(x.VM[:])
		w.u32(x.RetryAt)
		why := x.Why[:min(len(x.Why), MaxWaitText, left)]
		left -= len(why)
		w.text(why)
	}
	return w.b, w.err
}

// ReadWaits reads what AppendWaits wrote, and returns the bytes after it. Errors:
// ErrTooLarge, ErrFrame.
func ReadWaits(b []byte) (list []Wait, rest []byte, err error) {
	r := payloadReader{b: b}
	list = r.waits()
	return list, r.b, r.err
}

func (r *payloadReader) waits() []Wait {
	n := r.u32()
	switch {
	case r.err != nil || n == 0:
		return nil
	case n > MaxWaits:
		r.err = fmt.Errorf("list of %d objects, over %d: %w", n, MaxWaits, ErrTooLarge)
		return nil
	case len(r.b) < int(n)*waitBytes:
		r.err = fmt.Errorf("list of %d objects in %d bytes: %w", n, len(r.b), ErrFrame)
		return nil
	}
	list := make([]Wait, n)
	left := MaxWaitTexts
	for i := range list {
		x := &list[i]
		x.Kind, x.Idle = WaitKind(r.u8()), r.u8()&flagIdle != 0
		x.VNet = r.u32()
		x.NIC, x.Peer, x.VM = log.MAC(r.fixed(6)), log.MAC(r.fixed(6)), r.uuid()
		x.RetryAt = r.u32()
		if x.Why = r.text(); len(x.Why) > MaxWaitText || len(x.Why) > left {
			r.err = fmt.Errorf("text of %d bytes, over %d, or %d of the list: %w", len(x.Why), MaxWaitText, MaxWaitTexts, ErrTooLarge)
		}
		if left -= len(x.Why); r.err != nil {
			return nil
		}
	}
	return list
}
