package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"rutter/log"
)

// A frame (all numbers big endian):
//
//	0        4      5       13      17       17+length
//	| length | type | seq   | crc   | payload |
//	| u32    | u8   | u64   | u32   |         |
//
//	length  bytes of payload
//	seq     the position in the stream: see each type
//	crc     CRC32C over the first 13 bytes and the payload
//
// Payloads. A scope is one byte of length and the bytes of log.Scope; a text is
// two bytes of length and UTF-8; bytes are four bytes of length and the bytes.
// A reader skips what follows the fields that it knows.
//
//	down
//	 1 entry         seq of the entry   chain prefix 8, event bytes (to the end)
//	 2 object        stream's seq       scope, kind u8, revision u64, seq of its last event u64, id text, object bytes
//	 3 scope begin   as-of              count u32 (objects that follow), scope
//	 4 scope end     as-of              chain prefix 8, count u32, scope
//	 5 scope dropped stream's seq       scope
//	 6 bookmark      known up to        chain prefix 8; then, or nothing: count u32, and for each scope: scope, digest 16
//	 7 reset         head               reason u8, text
//	 8 drain         stream's seq       reason u8, text
//	 9 welcome       head               version u16, cluster 16, chain prefix 8
//	10 pong          head               (nothing)
//	11 request       its number         method text, path text, api-version text, body bytes
//	12 tell          waited for         (nothing)
//	up
//	64 hello         cursor's seq       version u16, cn 16, incarnation u64, session u64, cluster 16, chain prefix 8,
//	                                    count u32, then for each scope held: scope, as-of u64; then, or nothing: abilities u32
//	65 watermark     applied            programmed u64, objects u32, links u32, neighbours u32, fdb u32, failing u32, healed u64;
//	                                    then, or nothing: cluster 16, chain prefix 8 (at applied), checked u64,
//	                                    mismatches u32, resets u32, last reset u8; then, or nothing: drift text; then, or nothing:
//	                                    reached u64, number of the list u32, flags u8 (1: the list follows), list (AppendWaits)
//	66 report        0                  opaque (to the end)
//	67 ping          0                  (nothing)
//	68 again         at                 scope
//	69 response      request's number   status u16, body bytes
//	70 ring          0                  count u32, then for each VMM: id 16
//	71 inventory     its number         flags u8, count u32, then for each VM: uuid 16, object bytes (none: it is gone)
//	72 condition     0                  hold text, going u32, links u32, clusters 16 (was) and 16 (held), names text, trouble text
const headerSize = 17

// Version is the version of the frames that this program speaks, in hello and
// welcome. Fields that are appended do not change it.
const Version = 1

// MaxPayload bounds a frame's payload in bytes: one event or object of the
// largest size, and the fields around it.
const MaxPayload = log.MaxEventBytes + 4096

// MaxScopes bounds the scopes of a hello: a CN with 1,000 VMs of four NICs each
// holds at most 4,002, and the frame stays under MaxPayload.
const MaxScopes = 16384

// MaxCall bounds the body of a Request or a Response, in bytes. The state of one VMM is
// under 1 KB, and the text of an error is short.
const MaxCall = 64 << 10

// MaxRings bounds the VMMs of one Ring, and MaxInventory the VMs of one Inventory
// frame: with 1 KB for each they stay under MaxPayload. A sender that has more sends
// several frames.
const (
	MaxRings     = 1024
	MaxInventory = 512
)

// Type is the type of a frame. The numbers are on the wire and never change.
type Type uint8

// The types of frames. Those from 64 on go from the CN to the server.
const (
	TypeEntry        Type = 1
	TypeObject       Type = 2
	TypeScopeBegin   Type = 3
	TypeScopeEnd     Type = 4
	TypeScopeDropped Type = 5
	TypeBookmark     Type = 6
	TypeReset        Type = 7
	TypeDrain        Type = 8
	TypeWelcome      Type = 9
	TypePong         Type = 10
	TypeRequest      Type = 11
	TypeTell         Type = 12
	TypeHello        Type = 64
	TypeWatermark    Type = 65
	TypeReport       Type = 66
	TypePing         Type = 67
	TypeAgain        Type = 68
	TypeResponse     Type = 69
	TypeRing         Type = 70
	TypeInventory    Type = 71
	TypeCondition    Type = 72
)

// Errors of the frames.
var (
	// ErrFrame: the bytes are no frame, or the payload does not decode. The connection
	// must be closed.
	ErrFrame = errors.New("feed: bad frame")
	// ErrTooLarge: the frame is over MaxPayload, or has more elements than their bound.
	// It is neither sent nor read.
	ErrTooLarge = errors.New("feed: frame too large")
	// ErrUnknownType: this program does not know the type of the frame. The frame is
	// skipped, because a newer program may send it.
	ErrUnknownType = errors.New("feed: unknown frame type")
)

// castagnoli is the table of CRC32C (RFC 3720, appendix B.4).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frame is a frame as it is on the wire, its checksum verified.
type Frame struct {
	Type    Type
	Seq     log.Seq
	Payload []byte
}

// begin appends a header with room for length and checksum; finish fills them in.
func begin(b []byte, t Type, seq log.Seq) []byte {
	b = append(b, 0, 0, 0, 0, byte(t))
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	return append(b, 0, 0, 0, 0)
}

// finish completes the frame that starts at b[start:].
func finish(b []byte, start int) ([]byte, error) {
	frame := b[start:]
	n := len(frame) - headerSize
	if n > MaxPayload {
		return b[:start], fmt.Errorf("frame of type %d with %d bytes, over %d: %w", frame[4], n, MaxPayload, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(frame, uint32(n))
	binary.BigEndian.PutUint32(frame[13:], checksum(frame))
	return b, nil
}

func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:13], castagnoli), castagnoli, frame[headerSize:])
}

// Move appends the first of some whole frames to b with another seq in its header, and
// returns the frames behind it. Errors: ErrFrame if frames do not begin with a frame.
func Move(b, frames []byte, seq log.Seq) (moved, rest []byte, err error) {
	if len(frames) < headerSize {
		return b, nil, fmt.Errorf("%d bytes where a frame begins: %w", len(frames), ErrFrame)
	}
	n := headerSize + int(binary.BigEndian.Uint32(frames))
	if n > len(frames) {
		return b, nil, fmt.Errorf("frame of %d bytes in %d: %w", n, len(frames), ErrFrame)
	}
	start := len(b)
	b = append(b, frames[:n]...)
	binary.BigEndian.PutUint64(b[start+5:], uint64(seq))
	binary.BigEndian.PutUint32(b[start+13:], checksum(b[start:]))
	return b, frames[n:], nil
}

// Reader reads frames.
type Reader struct {
	r      io.Reader
	header [headerSize]byte
	bulk   bool
	room   []byte // of a bulk reader: memory for the next payloads
}

// NewReader returns a Reader of r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// NewBulkReader returns a Reader for callers that read many frames and keep none for
// long. Payloads share memory, which is freed with the last of them.
func NewBulkReader(r io.Reader) *Reader { return &Reader{r: r, bulk: true} }

// bulkRoom is the number of bytes that a bulk reader allocates at once.
const bulkRoom = 64 << 10

// take returns n bytes that the caller may keep.
func (r *Reader) take(n int) []byte {
	if !r.bulk || n > bulkRoom/8 {
		return make([]byte, n)
	}
	if len(r.room) < n {
		r.room = make([]byte, bulkRoom)
	}
	b := r.room[:n:n]
	r.room = r.room[n:]
	return b
}

// Next reads one frame. The caller may keep its payload. Errors: ErrFrame, ErrTooLarge,
// io.EOF between two frames, io.ErrUnexpectedEOF inside one, and those of the
// io.Reader.
func (r *Reader) Next() (Frame, error) {
	h := r.header[:]
	if _, err := io.ReadFull(r.r, h); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(h)
	if n > MaxPayload {
		return Frame{}, fmt.Errorf("frame of type %d announces %d bytes, over %d: %w", h[4], n, MaxPayload, ErrTooLarge)
	}
	frame := r.take(headerSize + int(n))
	copy(frame, h)
	if _, err := io.ReadFull(r.r, frame[headerSize:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	if got, want := checksum(frame), binary.BigEndian.Uint32(h[13:]); got != want {
		return Frame{}, fmt.Errorf("frame of type %d, seq %d: checksum %08x, want %08x: %w", h[4], binary.BigEndian.Uint64(h[5:]), got, want, ErrFrame)
	}
	return Frame{Type(h[4]), log.Seq(binary.BigEndian.Uint64(h[5:])), frame[headerSize:]}, nil
}
