package feed

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
)

// Append appends m's frame to b. On an error (ErrTooLarge, ErrFrame for a text
// or scope that cannot be written) b is returned as it was.
func Append(b []byte, m Message) ([]byte, error) {
	start := len(b)
	t, seq := m.frame()
	w := payloadWriter{b: begin(b, t, seq)}
	m.write(&w)
	if w.err != nil {
		return b[:start], w.err
	}
	return finish(w.b, start)
}

// AppendEntry appends the frame of an entry. So a server builds it once for many
// subscribers. Errors: ErrTooLarge.
func AppendEntry(b []byte, e log.Entry) ([]byte, error) {
	start := len(b)
	b = append(begin(b, TypeEntry, e.Seq), e.Hash[:len(log.ChainPrefix{})]...)
	return finish(append(b, e.Bytes...), start)
}

// Decode reads a frame's message, which may share the payload's memory. Errors:
// ErrUnknownType (skip the frame), ErrFrame, ErrTooLarge.
func Decode(f Frame) (Message, error) {
	m := newMessage(f.Type)
	if m == nil {
		return nil, fmt.Errorf("frame of type %d: %w", f.Type, ErrUnknownType)
	}
	r := payloadReader{b: f.Payload}
	m.read(f.Seq, &r)
	if r.err != nil {
		return nil, fmt.Errorf("frame of type %d, seq %d: %w", f.Type, f.Seq, r.err)
	}
	return m, nil
}

// DecodeEntry reads the message of a frame of TypeEntry, as Decode does, as an entry
// that shares the payload's memory and has only the prefix of its hash.
func DecodeEntry(f Frame) (log.Entry, error) {
	r := payloadReader{b: f.Payload}
	chain := r.prefix()
	if r.err != nil {
		return log.Entry{}, fmt.Errorf("frame of type %d, seq %d: %w", f.Type, f.Seq, r.err)
	}
	e := log.Entry{Seq: f.Seq, Bytes: r.rest()}
	copy(e.Hash[:], chain[:])
	return e, nil
}

// payloadWriter appends fields. It keeps the first error.
type payloadWriter struct {
	b   []byte
	err error
}

func (w *payloadWriter) u8(n uint8)   { w.b = append(w.b, n) }
func (w *payloadWriter) u16(n uint16) { w.b = binary.BigEndian.AppendUint16(w.b, n) }
func (w *payloadWriter) u32(n uint32) { w.b = binary.BigEndian.AppendUint32(w.b, n) }
func (w *payloadWriter) u64(n uint64) { w.b = binary.BigEndian.AppendUint64(w.b, n) }
func (w *payloadWriter) raw(b []byte) { w.b = append(w.b, b...) }

func (w *payloadWriter) bytes(b []byte) {
	w.u32(uint32(len(b)))
	w.raw(b)
}

func (w *payloadWriter) text(s string) {
	if len(s) > 1<<16-1 {
		w.err = fmt.Errorf("text of %d bytes, over %d: %w", len(s), 1<<16-1, ErrTooLarge)
		return
	}
	w.u16(uint16(len(s)))
	w.b = append(w.b, s...)
}

func (w *payloadWriter) scope(s log.Scope) {
	at := len(w.b)
	w.u8(0)
	b, err := s.AppendBinary(w.b)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("scope %s: %w: %w", s, ErrFrame, err)
	}
	w.b = b
	w.b[at] = uint8(len(b) - at - 1)
}

// payloadReader reads fields. It keeps the first error, and from then on all fields are
// zero.
type payloadReader struct {
	b   []byte
	err error
}

func (r *payloadReader) take(n int) []byte {
	if r.err == nil && n > len(r.b) {
		r.err = fmt.Errorf("payload ends inside a field of %d bytes: %w", n, ErrFrame)
	}
	if r.err != nil {
		return nil
	}
	field := r.b[:n:n]
	r.b = r.b[n:]
	return field
}

func (r *payloadReader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *payloadReader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *payloadReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *payloadReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *payloadReader) seq() log.Seq   { return log.Seq(r.u64()) }
func (r *payloadReader) text() string   { return string(r.take(int(r.u16()))) }
func (r *payloadReader) rest() []byte   { return r.take(len(r.b)) }
func (r *payloadReader) uuid() log.UUID { return log.UUID(r.fixed(16)) }

func (r *payloadReader) prefix() log.ChainPrefix { return log.ChainPrefix(r.fixed(8)) }

// fixed reads n bytes. After an error they are zero.
func (r *payloadReader) fixed(n int) []byte {
	if b := r.take(n); b != nil {
		return b
	}
	return make([]byte, n)
}

func (r *payloadReader) bytes() []byte {
	n := r.u32()
	if r.err == nil && n > MaxPayload {
		r.err = fmt.Errorf("field of %d bytes: %w", n, ErrFrame)
		return nil
	}
	return r.take(int(n))
}

func (r *payloadReader) scope() (s log.Scope) {
	b := r.take(int(r.u8()))
	if r.err != nil {
		return s
	}
	if err := s.UnmarshalBinary(b); err != nil {
		r.err = fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return s
}

func (m *Entry) write(w *payloadWriter) {
	w.raw(m.Chain[:])
	w.raw(m.Event)
}

func (m *Entry) read(seq log.Seq, r *payloadReader) {
	m.Seq, m.Chain = seq, r.prefix()
	m.Event = r.rest()
}

func (m *Object) write(w *payloadWriter) {
	w.scope(m.Scope)
	w.u8(uint8(m.Kind))
	w.u64(uint64(m.Revision))
	w.u64(uint64(m.Seq))
	w.text(m.ID)
	w.bytes(m.Bytes)
}

func (m *Object) read(seq log.Seq, r *payloadReader) {
	m.At, m.Scope = seq, r.scope()
	m.Kind = log.Kind(r.u8())
	m.Revision = log.Revision(r.u64())
	m.Seq = r.seq()
	m.ID = r.text()
	m.Bytes = r.bytes()
}

func (m *ScopeBegin) write(w *payloadWriter) {
	w.u32(m.Count)
	w.scope(m.Scope)
}

func (m *ScopeBegin) read(seq log.Seq, r *payloadReader) {
	m.AsOf, m.Count = seq, r.u32()
	m.Scope = r.scope()
}

func (m *ScopeEnd) write(w *payloadWriter) {
	w.raw(m.Chain[:])
	w.u32(m.Count)
	w.scope(m.Scope)
}

func (m *ScopeEnd) read(seq log.Seq, r *payloadReader) {
	m.AsOf, m.Chain = seq, r.prefix()
	m.Count = r.u32()
	m.Scope = r.scope()
}

func (m *ScopeDropped) write(w *payloadWriter) { w.scope(m.Scope) }

func (m *ScopeDropped) read(seq log.Seq, r *payloadReader) { m.At, m.Scope = seq, r.scope() }

func (m *Bookmark) write(w *payloadWriter) {
	w.raw(m.Chain[:])
	if len(m.Digests) == 0 {
		return
	}
	w.u32(uint32(len(m.Digests)))
	for _, d := range m.Digests {
		w.scope(d.Scope)
		w.u64(d.Digest.Hi)
		w.u64(d.Digest.Lo)
	}
}

func (m *Bookmark) read(seq log.Seq, r *payloadReader) {
	m.Seq, m.Chain = seq, r.prefix()
	if len(r.b) < 4 {
		return
	}
	n := r.u32()
	if r.err == nil && n > MaxScopes {
		r.err = fmt.Errorf("bookmark with %d digests, over %d: %w", n, MaxScopes, ErrTooLarge)
	}
	for ; n > 0 && r.err == nil; n-- {
		m.Digests = append(m.Digests, ScopeDigest{r.scope(), log.Digest{Hi: r.u64(), Lo: r.u64()}})
	}
}

func (m *Reset) write(w *payloadWriter) {
	w.u8(uint8(m.Reason))
	w.text(m.Text)
}

func (m *Reset) read(seq log.Seq, r *payloadReader) {
	m.Head, m.Reason = seq, ResetReason(r.u8())
	m.Text = r.text()
}

func (m *Drain) write(w *payloadWriter) {
	w.u8(uint8(m.Reason))
	w.text(m.Text)
}

func (m *Drain) read(seq log.Seq, r *payloadReader) {
	m.At, m.Reason = seq, DrainReason(r.u8())
	m.Text = r.text()
}

func (m *Welcome) write(w *payloadWriter) {
	w.u16(m.Version)
	w.raw(m.Head.Cluster[:])
	w.raw(m.Head.Chain[:])
	if m.Knows != 0 {
		w.u32(m.Knows)
	}
}

func (m *Welcome) read(seq log.Seq, r *payloadReader) {
	m.Version = r.u16()
	m.Head = log.Cursor{Cluster: r.uuid(), Seq: seq, Chain: r.prefix()}
	if len(r.b) >= 4 {
		m.Knows = r.u32()
	}
}

func (*Pong) write(*payloadWriter) {}

func (m *Pong) read(seq log.Seq, _ *payloadReader) { m.Head = seq }

func (*Tell) write(*payloadWriter) {}

func (m *Tell) read(seq log.Seq, _ *payloadReader) { m.Seq = seq }

func (m *Hello) write(w *payloadWriter) {
	if len(m.Scopes) > MaxScopes {
		w.err = fmt.Errorf("hello with %d scopes, over %d: %w", len(m.Scopes), MaxScopes, ErrTooLarge)
		return
	}
	version := m.Version
	if version == 0 {
		version = Version
	}
	w.u16(version)
	w.raw(m.CN[:])
	w.u64(m.Incarnation)
	w.u64(m.Session)
	w.raw(m.Cursor.Cluster[:])
	w.raw(m.Cursor.Chain[:])
	w.u32(uint32(len(m.Scopes)))
	for _, s := range m.Scopes {
		w.scope(s.Scope)
		w.u64(uint64(s.AsOf))
	}
	if m.Abilities != 0 {
		w.u32(uint32(m.Abilities))
	}
}

func (m *Hello) read(seq log.Seq, r *payloadReader) {
	m.Version = r.u16()
	m.CN = r.uuid()
	m.Incarnation = r.u64()
	m.Session = r.u64()
	m.Cursor = log.Cursor{Cluster: r.uuid(), Seq: seq, Chain: r.prefix()}
	n := r.u32()
	if r.err == nil && n > MaxScopes {
		r.err = fmt.Errorf("hello with %d scopes, over %d: %w", n, MaxScopes, ErrTooLarge)
	}
	for ; n > 0 && r.err == nil; n-- {
		m.Scopes = append(m.Scopes, HeldScope{r.scope(), r.seq()})
	}
	if len(r.b) >= 4 {
		m.Abilities = Abilities(r.u32())
	}
}

// watermarkLog is the length of what was appended to a watermark.
const watermarkLog = 16 + 8 + 8 + 4 + 4 + 1

func (m *Watermark) write(w *payloadWriter) {
	w.u64(uint64(m.Programmed))
	for _, n := range [...]uint32{m.Objects, m.Links, m.Neighbours, m.FDB, m.Failing} {
		w.u32(n)
	}
	w.u64(m.Healed)
	if m.Log.Cluster.IsZero() && m.Checked == 0 && m.Mismatches == 0 && m.Resets == 0 && m.LastReset == 0 && m.Drift == "" && m.List == 0 {
		return
	}
	w.raw(m.Log.Cluster[:])
	w.raw(m.Log.Chain[:])
	w.u64(uint64(m.Checked))
	w.u32(m.Mismatches)
	w.u32(m.Resets)
	w.u8(uint8(m.LastReset))
	if m.Drift != "" || m.List != 0 {
		w.text(m.Drift)
	}
	if m.List == 0 {
		return
	}
	w.u64(uint64(m.Reached))
	w.u32(m.List)
	if !m.Listed {
		w.u8(0)
		return
	}
	w.u8(flagListed)
	if b, err := AppendWaits(w.b, m.Waits); err != nil {
		w.err = err
	} else {
		w.b = b
	}
}

const (
	// watermarkList is the length of what was appended after the drift, without the list.
	watermarkList = 8 + 4 + 1
	flagListed    = 1 << 0
)

func (m *Watermark) read(seq log.Seq, r *payloadReader) {
	m.Applied, m.Programmed = seq, r.seq()
	for _, p := range [...]*uint32{&m.Objects, &m.Links, &m.Neighbours, &m.FDB, &m.Failing} {
		*p = r.u32()
	}
	m.Healed = r.u64()
	if len(r.b) < watermarkLog {
		return
	}
	if at := (log.Cursor{Cluster: r.uuid(), Seq: seq, Chain: r.prefix()}); !at.Cluster.IsZero() {
		m.Log = at // without a log there is no chain prefix: write may omit both
	}
	m.Checked, m.Mismatches, m.Resets, m.LastReset = r.seq(), r.u32(), r.u32(), ResetReason(r.u8())
	if len(r.b) >= 2 {
		m.Drift = r.text()
	}
	if len(r.b) < watermarkList {
		return
	}
	reached, list := r.seq(), r.u32()
	if listed := r.u8()&flagListed != 0; list != 0 {
		if m.Reached, m.List, m.Listed = reached, list, listed; listed {
			m.Waits = r.waits()
		}
	}
}

func (m *Again) write(w *payloadWriter) { w.scope(m.Scope) }

func (m *Again) read(seq log.Seq, r *payloadReader) { m.At, m.Scope = seq, r.scope() }

func (m *Report) write(w *payloadWriter) { w.raw(m.Bytes) }

func (m *Report) read(_ log.Seq, r *payloadReader) { m.Bytes = r.rest() }

func (*Ping) write(*payloadWriter) {}

func (*Ping) read(log.Seq, *payloadReader) {}
