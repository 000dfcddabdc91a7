package varp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// DefaultPort is the TCP port of an SVP server (spec/svp.md §1).
const DefaultPort = 1296

// Version is the only version that this package writes. Requests of any other
// version are answered as this one, as portolan does (spec/svp.md §1.6).
const Version = 1

// HeaderSize is the length of the header before each body, in bytes.
const HeaderSize = 16

// MaxBody is the longest body, in bytes, that a Server or a Client of ours reads or
// writes. The longest body of an old client is a LOG_RM of 32 ids, 516 bytes. This
// leaves room for 1,023 ids and limits the memory of a connection.
const MaxBody = 16 << 10

// The codec's errors. Each costs its connection: after an invalid message, where the
// next one begins is unknown.
var (
	// ErrBadCRC: the CRC-32 in the header is not that of the message.
	ErrBadCRC = errors.New("varp: wrong CRC")
	// ErrTooBig: the header announces a body over the limit.
	ErrTooBig = errors.New("varp: body over the limit")
	// ErrBadOp: an op that is unknown, or not allowed in this direction.
	ErrBadOp = errors.New("varp: op not served")
	// ErrBadBody: a body too short for its op, or in disagreement with itself.
	ErrBadBody = errors.New("varp: malformed body")
)

// Op is the operation of a message.
type Op uint16

// The ops of SVP (libvarpd_svp_prot.h, svp_op_t; spec/svp.md §1.2). The payload of BULK
// was never defined, and ROUTE belongs to version 2: this package knows only their
// names.
const (
	OpPing     Op = 1
	OpPong     Op = 2
	OpVL2Req   Op = 3
	OpVL2Ack   Op = 4
	OpVL3Req   Op = 5
	OpVL3Ack   Op = 6
	OpBulkReq  Op = 7
	OpBulkAck  Op = 8
	OpLogReq   Op = 9
	OpLogAck   Op = 10
	OpLogRM    Op = 11
	OpLogRMAck Op = 12
	OpShoot    Op = 13
	OpRouteReq Op = 14
	OpRouteAck Op = 15
)

var opNames = [...]string{
	OpPing: "PING", OpPong: "PONG",
	OpVL2Req: "VL2_REQ", OpVL2Ack: "VL2_ACK",
	OpVL3Req: "VL3_REQ", OpVL3Ack: "VL3_ACK",
	OpBulkReq: "BULK_REQ", OpBulkAck: "BULK_ACK",
	OpLogReq: "LOG_REQ", OpLogAck: "LOG_ACK",
	OpLogRM: "LOG_RM", OpLogRMAck: "LOG_RM_ACK",
	OpShoot:    "SHOOTDOWN",
	OpRouteReq: "ROUTE_REQ", OpRouteAck: "ROUTE_ACK",
}

// String returns the protocol's name of o, or its number.
func (o Op) String() string {
	if int(o) < len(opNames) && opNames[o] != "" {
		return opNames[o]
	}
	return "op " + strconv.Itoa(int(o))
}

// Status is the outcome in an acknowledgement: 2 bytes wide in VL2_ACK, 4 in
// all others.
type Status uint32

// The statuses of SVP (libvarpd_svp_prot.h, svp_status_t).
const (
	StatusOK        Status = 0
	StatusFatal     Status = 1
	StatusNotFound  Status = 2
	StatusBadL3Type Status = 3
	StatusBadBulk   Status = 4
)

// String returns the protocol's name of s, or its number.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "OK"
	case StatusFatal:
		return "FATAL"
	case StatusNotFound:
		return "NOTFOUND"
	case StatusBadL3Type:
		return "BADL3TYPE"
	case StatusBadBulk:
		return "BADBULK"
	}
	return "status " + strconv.FormatUint(uint64(s), 10)
}

// Header precedes each body (libvarpd_svp_prot.h, svp_req_t; big endian):
//
//	0         2    4      8    12      16
//	| version | op | size | id | crc32 |
//
// CRC-32 is the IEEE one, over header and body with its own field as zero.
type Header struct {
	Version uint16
	Op      Op
	Size    uint32 // bytes of the body, without the header
	ID      uint32 // opaque: the peer's four bytes, returned unchanged
	CRC     uint32
}

const (
	offSize = 4
	offCRC  = 12
)

func parseHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Version: binary.BigEndian.Uint16(b),
		Op:      Op(binary.BigEndian.Uint16(b[2:])),
		Size:    binary.BigEndian.Uint32(b[offSize:]),
		ID:      binary.BigEndian.Uint32(b[8:]),
		CRC:     binary.BigEndian.Uint32(b[offCRC:]),
	}
}

// Message is a header and its body. Body points into the buffer that was
// split, so it is valid as long as that buffer.
type Message struct {
	Header
	Body []byte
}

// Split reads the first message of b and returns its length in bytes. 0 bytes and
// no error mean that b does not have a complete message yet. It returns ErrTooBig,
// as soon as the header is there, for a body of more than maxBody bytes, and
// ErrBadCRC; both with the header filled in. It checks neither the version nor the op.
func Split(b []byte, maxBody int) (Message, int, error) {
	if len(b) < HeaderSize {
		return Message{}, 0, nil
	}
	m := Message{Header: parseHeader(b)}
	if uint64(m.Size) > uint64(maxBody) {
		return m, 0, fmt.Errorf("%s: body of %d bytes, at most %d: %w", m.Op, m.Size, maxBody, ErrTooBig)
	}
	n := HeaderSize + int(m.Size)
	if len(b) < n {
		return Message{}, 0, nil
	}
	m.Body = b[HeaderSize:n:n]
	if sum := checksum(b[:n]); sum != m.CRC {
		return m, 0, fmt.Errorf("%s: CRC %08x, computed %08x: %w", m.Op, m.CRC, sum, ErrBadCRC)
	}
	return m, n, nil
}

// Append appends a message with any op and body to dst. It is for ops without
// a body (PING, PONG) and for tools that use other ops.
func Append(dst []byte, op Op, id uint32, body []byte) []byte {
	start := len(dst)
	return finish(append(begin(dst, op, id), body...), start)
}

// begin appends a header whose size and CRC finish fills in.
func begin(dst []byte, op Op, id uint32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, Version)
	dst = binary.BigEndian.AppendUint16(dst, uint16(op))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, id)
	return binary.BigEndian.AppendUint32(dst, 0)
}

// finish completes the message that begins at start and ends with dst.
func finish(dst []byte, start int) []byte {
	msg := dst[start:]
	binary.BigEndian.PutUint32(msg[offSize:], uint32(len(msg)-HeaderSize))
	binary.BigEndian.PutUint32(msg[offCRC:], checksum(msg))
	return dst
}

// wantBody refuses a body of fewer than n bytes. The rest of a longer one is
// ignored, as portolan does (vector vl2-trailing-bytes).
func wantBody(op Op, body []byte, n int) error {
	if len(body) < n {
		return fmt.Errorf("%s: body of %d bytes, want %d: %w", op, len(body), n, ErrBadBody)
	}
	return nil
}

// wantExactly refuses a body of any other length than n bytes, as illumos does
// with answers.
func wantExactly(op Op, body []byte, n int) error {
	if len(body) != n {
		return fmt.Errorf("%s: body of %d bytes, want exactly %d: %w", op, len(body), n, ErrBadBody)
	}
	return nil
}

// crcTables are the tables of "slicing by 16": crcTables[k][b] is the CRC of the byte b
// and k zero bytes. hash/crc32 uses the processor's multiplication for 64 bytes or more,
// and for the 40 of a request reads 8 at a time, and fewer than 16 one by one.
// BenchmarkChecksum: 27 ns for a request, 66 ns with hash/crc32 in three parts.
var crcTables = func() (t [16][256]uint32) {
	t[0] = *crc32.IEEETable
	for b := range 256 {
		for k := 1; k < 16; k++ {
			t[k][b] = t[k-1][b]>>8 ^ t[0][byte(t[k-1][b])]
		}
	}
	return t
}()

// checksum returns the CRC of a complete message; its CRC field is ignored.
func checksum(msg []byte) uint32 {
	const withoutCRC = 1<<32 - 1 // of the second half of the header, read as little endian
	head := binary.LittleEndian.Uint64(msg[8:HeaderSize]) & withoutCRC
	sum := ^crcOf16(1<<32-1, binary.LittleEndian.Uint64(msg), head)
	return crcOf(sum, msg[HeaderSize:])
}

// crcOf continues the IEEE CRC-32 sum over b.
func crcOf(sum uint32, b []byte) uint32 {
	if len(b) > 64 {
		return crc32.Update(sum, crc32.IEEETable, b)
	}
	sum = ^sum
	for ; len(b) >= 16; b = b[16:] {
		sum = crcOf16(sum, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
	}
	t := &crcTables
	if len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b) ^ uint64(sum)
		sum = t[7][byte(x)] ^ t[6][byte(x>>8)] ^ t[5][byte(x>>16)] ^ t[4][byte(x>>24)] ^
			t[3][byte(x>>32)] ^ t[2][byte(x>>40)] ^ t[1][byte(x>>48)] ^ t[0][byte(x>>56)]
		b = b[8:]
	}
	if len(b) >= 4 {
		x := binary.LittleEndian.Uint32(b) ^ sum
		sum = t[3][byte(x)] ^ t[2][byte(x>>8)] ^ t[1][byte(x>>16)] ^ t[0][byte(x>>24)]
		b = b[4:]
	}
	for _, c := range b {
		sum = t[0][byte(sum)^c] ^ sum>>8
	}
	return ^sum
}

// crcOf16 continues a CRC, not inverted, over 16 bytes.
func crcOf16(sum uint32, x, y uint64) uint32 {
	t := &crcTables
	x ^= uint64(sum)
	return t[15][byte(x)] ^ t[14][byte(x>>8)] ^ t[13][byte(x>>16)] ^ t[12][byte(x>>24)] ^
		t[11][byte(x>>32)] ^ t[10][byte(x>>40)] ^ t[9][byte(x>>48)] ^ t[8][byte(x>>56)] ^
		t[7][byte(y)] ^ t[6][byte(y>>8)] ^ t[5][byte(y>>16)] ^ t[4][byte(y>>24)] ^
		t[3][byte(y>>32)] ^ t[2][byte(y>>40)] ^ t[1][byte(y>>48)] ^ t[0][byte(y>>56)]
}
