package intake

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
//	0        4      5      9       9+length
//	| length | type | crc  | payload |
//	| u32    | u8   | u32  |         |
//
//	length  bytes of payload
//	crc     CRC32C over the first 5 bytes and the payload
//
// Payloads. A reader skips what follows the fields that it knows.
//
//	down
//	 1 welcome   version u16, leads u8 (0 or 1)
//	 2 result    result bytes (log.Encoder.Result)
//	 3 failed    change id 16, code u8, text (to the end)
//	 4 drain     text (to the end)
//	 5 pong      (nothing)
//	up
//	64 change    change bytes (log.Encoder.Change)
//	65 ping      (nothing)
const headerSize = 9

// Version is the version of the frames that this program speaks. Fields that
// are appended do not change it.
const Version = 1

// Protocol is the name in the Upgrade header, Path the path of that request.
const (
	Protocol = "rutter-write"
	Path     = "/write"
)

// MaxPayload bounds a frame's payload in bytes: one change of the largest size.
const MaxPayload = log.MaxChangeBytes

// maxText bounds the text of failed and drain, in bytes. A longer text is cut.
const maxText = 1024

// keptBuffer bounds the bytes of buffer that a Reader keeps between two frames, so that
// one large change does not hold memory until the stream ends.
const keptBuffer = 64 << 10

// Type is the type of a frame. The numbers are on the wire and never change.
type Type uint8

// The types of frames. Those from 64 on go from the client to the server.
const (
	TypeWelcome Type = 1
	TypeResult  Type = 2
	TypeFailed  Type = 3
	TypeDrain   Type = 4
	TypePong    Type = 5
	TypeChange  Type = 64
	TypePing    Type = 65
)

// Errors of the frames.
var (
	// ErrFrame: the bytes are no frame, or the payload does not decode. The connection
	// must be closed.
	ErrFrame = errors.New("intake: bad frame")
	// ErrTooLarge: the frame is over MaxPayload. It is neither sent nor read.
	ErrTooLarge = errors.New("intake: frame too large")
)

// castagnoli is the table of CRC32C (RFC 3720, appendix B.4).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frame is a frame as it is on the wire, its checksum verified.
type Frame struct {
	Type    Type
	Payload []byte // belongs to the Reader: valid until its next call
}

// Append appends a frame of type t with the payload. Errors: ErrTooLarge.
func Append(b []byte, t Type, payload []byte) ([]byte, error) {
	if len(payload) > MaxPayload {
		return b, fmt.Errorf("frame of type %d with %d bytes, over %d: %w", t, len(payload), MaxPayload, ErrTooLarge)
	}
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, checksum(b[start:], payload))
	return append(b, payload...), nil
}

func checksum(head, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:5], castagnoli), castagnoli, payload)
}

// Reader reads frames.
type Reader struct {
	r      io.Reader
	header [headerSize]byte
	buf    []byte
}

// NewReader returns a Reader of r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads one frame. Errors: ErrFrame, ErrTooLarge, io.EOF between two
// frames, io.ErrUnexpectedEOF inside one, and those of the io.Reader.
func (r *Reader) Next() (Frame, error) {
	h := r.header[:]
	if _, err := io.ReadFull(r.r, h); err != nil {
		return Frame{}, err
	}
	n := int64(binary.BigEndian.Uint32(h))
	if n > MaxPayload {
		return Frame{}, fmt.Errorf("frame of type %d announces %d bytes, over %d: %w", h[4], n, MaxPayload, ErrTooLarge)
	}
	if cap(r.buf) < int(n) || cap(r.buf) > keptBuffer {
		r.buf = make([]byte, max(int(n), 4096))
	}
	payload := r.buf[:n]
	if _, err := io.ReadFull(r.r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	if got, want := checksum(h, payload), binary.BigEndian.Uint32(h[5:]); got != want {
		return Frame{}, fmt.Errorf("frame of type %d: checksum %08x, want %08x: %w", h[4], got, want, ErrFrame)
	}
	return Frame{Type(h[4]), payload}, nil
}
