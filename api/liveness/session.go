package liveness

import (
	"encoding/binary"
	"fmt"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// Session is one connection of a CN, as its server knows it.
type Session struct {
	CN          log.UUID
	Incarnation uint64 // of the agent's process
	Number      uint64 // of the connection within it
	Gone        bool   // the connection has ended

	Log        log.UUID // the cluster of the watermark; zero before the first
	Sent       log.Seq  // the last bookmark that was sent
	Applied    log.Seq  // in the watermark
	Programmed log.Seq  // in the watermark; 0 is unknown
	Failing    uint32   // steps that the kernel refused

	Checked    log.Seq // seq at which the digests last matched
	Mismatches uint32  // scopes whose digests differed, in this process of the agent
	Resets     uint32  // in this process of the agent
	LastReset  uint8   // feed.ResetReason of the last; 0: none
	Held       bool    // the agent holds removals back, because they would take away too much

	// Reached, List and Waits are those of the watermark (feed.Watermark). Waits is never
	// changed in place. List is 0 if there is none; then only Programmed counts.
	Reached log.Seq
	List    uint32
	Waits   []feed.Wait
}

// far is the seq that the CN has reached, up to which only objects of its list wait.
func (s *Session) far() log.Seq { return max(s.Programmed, s.Reached) }

// Compare orders sessions of one CN: by incarnation, then number.
func (s *Session) Compare(o *Session) int {
	switch {
	case s.Incarnation != o.Incarnation:
		if s.Incarnation < o.Incarnation {
			return -1
		}
		return 1
	case s.Number != o.Number:
		if s.Number < o.Number {
			return -1
		}
		return 1
	}
	return 0
}

// Reported is a session with the time since the CN's last sign.
type Reported struct {
	Session
	Silent time.Duration // milliseconds, as a duration, from its last frame to the answer
	// listed: Waits is there. If not, the asker has the list of that number already.
	listed bool
}

// poll asks a server for its sessions.
type poll struct {
	run     uint64 // of the server's process, from its last answer; 0 at first
	since   uint64 // the version that the asker has
	atLeast time.Duration
	atMost  time.Duration // bounds of the time until the answer, in whole milliseconds
	// wanted is what a barrier waits for: the server must ask these CNs for their
	// progress; all CNs if cns is empty.
	wanted log.Seq
	cns    []log.UUID
}

// pollAnswer is a server's answer to a poll: the sessions that changed since.
type pollAnswer struct {
	run     uint64
	version uint64 // of the last session in it, or of the table
	full    bool   // the asker's version is of another process of the server: replace everything
	more    bool   // incomplete: ask again at once
	rows    []Reported
}

// The bytes of both, big endian. A reader skips bytes after the fields that it knows;
// the length of a row is in the header.
//
//	poll    0 format 1, 1 run u64, 9 since u64, 17 at least ms u32, 21 at most ms u32;
//	        then, or nothing: 25 wanted u64, 33 cns u32, 37 cns of 16
//	answer  0 format 1, 1 run u64, 9 version u64, 17 flags, 18 rows u32, 22 bytes of a row u16, 24 rows
//	row     0 cn 16, 16 incarnation u64, 24 number u64, 32 flags, 33 silent ms u32, 37 cluster 16, 53 sent u64,
//	        61 applied u64, 69 programmed u64, 77 failing u32, 81 checked u64, 89 mismatches u32, 93 resets u32, 97 last reset u8;
//	        then, or nothing: 98 reached u64, 106 number of the list u32
//	        after all rows, for each row with flagListed: its list (feed.AppendWaits)
const (
	wireFormat   = 1
	pollBytes    = 25
	pollWanted   = 37
	answerHeader = 24
	rowLeast     = 98  // of the first version
	rowBytes     = 110 // as written

	flagFull   = 1 << 0
	flagMore   = 1 << 1
	flagGone   = 1 << 0
	flagHeld   = 1 << 1
	flagListed = 1 << 2
)

// MaxWanted bounds the CNs in a poll; if more are waited for, it asks all.
const MaxWanted = 4096

// MaxRows bounds the sessions of one answer: under half of a peer's frame. maxLists is the
// size of the lists of one answer, in bytes, after which it ends: with the one that is
// over, under the other half.
const (
	MaxRows  = 4096
	maxLists = 256 << 10
)

func milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}

func (p poll) encode() []byte {
	b := append(make([]byte, 0, pollBytes), wireFormat)
	b = binary.BigEndian.AppendUint64(b, p.run)
	b = binary.BigEndian.AppendUint64(b, p.since)
	b = binary.BigEndian.AppendUint32(b, milliseconds(p.atLeast))
	b = binary.BigEndian.AppendUint32(b, milliseconds(p.atMost))
	if p.wanted == 0 {
		return b
	}
	b = binary.BigEndian.AppendUint64(b, uint64(p.wanted))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.cns)))
	for _, cn := range p.cns {
		b = append(b, cn[:]...)
	}
	return b
}

func decodePoll(b []byte) (poll, error) {
	if len(b) < pollBytes || b[0] != wireFormat {
		return poll{}, fmt.Errorf("liveness: poll of %d bytes: %w", len(b), log.ErrFormat)
	}
	p := poll{
		run: binary.BigEndian.Uint64(b[1:]), since: binary.BigEndian.Uint64(b[9:]),
		atLeast: time.Duration(binary.BigEndian.Uint32(b[17:])) * time.Millisecond,
		atMost:  time.Duration(binary.BigEndian.Uint32(b[21:])) * time.Millisecond,
	}
	if len(b) < pollWanted {
		return p, nil
	}
	if p.wanted = log.Seq(binary.BigEndian.Uint64(b[25:])); p.wanted == 0 {
		return p, nil
	}
	n := binary.BigEndian.Uint32(b[33:])
	if b = b[pollWanted:]; n > MaxWanted || len(b) < 16*int(n) {
		return poll{}, fmt.Errorf("liveness: poll that wants %d CNs in %d bytes: %w", n, len(b), log.ErrFormat)
	}
	for ; n > 0; n-- {
		p.cns, b = append(p.cns, log.UUID(b[:16])), b[16:]
	}
	return p, nil
}

func (a *pollAnswer) encode() []byte {
	b := append(make([]byte, 0, answerHeader+len(a.rows)*rowBytes), wireFormat)
	b = binary.BigEndian.AppendUint64(b, a.run)
	b = binary.BigEndian.AppendUint64(b, a.version)
	b = append(b, flag(a.full, flagFull)|flag(a.more, flagMore))
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.rows)))
	b = binary.BigEndian.AppendUint16(b, rowBytes)
	for i := range a.rows {
		b = a.rows[i].append(b)
	}
	for i := range a.rows {
		if a.rows[i].listed {
			b, _ = feed.AppendWaits(b, a.rows[i].Waits) // the server that read it bounded it
		}
	}
	return b
}

func flag(is bool, bit byte) byte {
	if is {
		return bit
	}
	return 0
}

func (r *Reported) append(b []byte) []byte {
	b = append(b, r.CN[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Incarnation)
	b = binary.BigEndian.AppendUint64(b, r.Number)
	b = append(b, flag(r.Gone, flagGone)|flag(r.Held, flagHeld)|flag(r.listed, flagListed))
	b = binary.BigEndian.AppendUint32(b, milliseconds(r.Silent))
	b = append(b, r.Log[:]...)
	for _, seq := range [...]log.Seq{r.Sent, r.Applied, r.Programmed} {
		b = binary.BigEndian.AppendUint64(b, uint64(seq))
	}
	b = binary.BigEndian.AppendUint32(b, r.Failing)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Checked))
	b = binary.BigEndian.AppendUint32(b, r.Mismatches)
	b = binary.BigEndian.AppendUint32(b, r.Resets)
	b = append(b, r.LastReset)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Reached))
	return binary.BigEndian.AppendUint32(b, r.List)
}

func decodeAnswer(b []byte) (*pollAnswer, error) {
	if len(b) < answerHeader || b[0] != wireFormat {
		return nil, fmt.Errorf("liveness: answer of %d bytes: %w", len(b), log.ErrFormat)
	}
	a := &pollAnswer{
		run: binary.BigEndian.Uint64(b[1:]), version: binary.BigEndian.Uint64(b[9:]),
		full: b[17]&flagFull != 0, more: b[17]&flagMore != 0,
	}
	rows, size := int(binary.BigEndian.Uint32(b[18:])), int(binary.BigEndian.Uint16(b[22:]))
	b = b[answerHeader:]
	if rows > MaxRows || size < rowLeast || len(b) < rows*size {
		return nil, fmt.Errorf("liveness: answer of %d sessions of %d bytes in %d: %w", rows, size, len(b), log.ErrFormat)
	}
	a.rows = make([]Reported, rows)
	for i := range a.rows {
		a.rows[i].read(b[i*size : (i+1)*size])
	}
	b = b[rows*size:]
	for i := range a.rows {
		if a.rows[i].listed {
			var err error
			if a.rows[i].Waits, b, err = feed.ReadWaits(b); err != nil {
				return nil, fmt.Errorf("liveness: list of CN %s: %w: %w", a.rows[i].CN, log.ErrFormat, err)
			}
		}
	}
	return a, nil
}

func (r *Reported) read(b []byte) {
	u32, u64 := binary.BigEndian.Uint32, binary.BigEndian.Uint64
	r.CN = log.UUID(b[:16])
	r.Incarnation, r.Number, r.Gone = u64(b[16:]), u64(b[24:]), b[32]&flagGone != 0
	r.Held = b[32]&flagHeld != 0
	r.Silent = time.Duration(u32(b[33:])) * time.Millisecond
	r.Log = log.UUID(b[37:53])
	r.Sent, r.Applied, r.Programmed = log.Seq(u64(b[53:])), log.Seq(u64(b[61:])), log.Seq(u64(b[69:]))
	r.Failing, r.Checked = u32(b[77:]), log.Seq(u64(b[81:]))
	r.Mismatches, r.Resets, r.LastReset = u32(b[89:]), u32(b[93:]), b[97]
	if len(b) >= rowBytes {
		r.Reached, r.List, r.listed = log.Seq(u64(b[98:])), u32(b[106:]), b[32]&flagListed != 0
	}
}
