package varp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"rutter/log"
)

// RecordType is the kind of a record in the shootdown log.
type RecordType uint32

// The record types of version 1 (libvarpd_svp_prot.h, svp_log_type_t). Version 2 has a
// third, ROUTE, which must never reach a version 1 client: illumos refuses the whole
// batch and requests it again without end.
const (
	RecordVL2 RecordType = 1
	RecordVL3 RecordType = 2
)

// Lengths of the records, in bytes.
const (
	recordVL2Size = 32
	recordVL3Size = 44
)

// String returns the protocol's name of t, or its number.
func (t RecordType) String() string {
	switch t {
	case RecordVL2:
		return "VL2"
	case RecordVL3:
		return "VL3"
	}
	return "record type " + strconv.FormatUint(uint64(t), 10)
}

// Record tells a client to forget a mapping: it drops a VL2 mapping, and asks again for
// a VL3 one. Its two forms (svp_log_vl2_t, svp_log_vl3_t):
//
//	0      4      20    26  28     32
//	| type | uuid | mac | 0 | vnet |
//
//	0      4      20           36  38     40     44
//	| type | uuid | overlay ip | 0 | vlan | vnet |
type Record struct {
	Type RecordType
	ID   log.UUID // what LOG_RM names
	MAC  log.MAC  // VL2 only
	IP   netip.Addr
	VLAN uint16 // VL3 only, as IP: of the overlay network
	VNet uint32
}

// Size returns the length of r in bytes, 0 if its type is unknown.
func (r Record) Size() int {
	switch r.Type {
	case RecordVL2:
		return recordVL2Size
	case RecordVL3:
		return recordVL3Size
	}
	return 0
}

// appendTo appends r, which must be of a known type.
func (r Record) appendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Type))
	dst = append(dst, r.ID[:]...)
	switch r.Type {
	case RecordVL2:
		dst = appendMACPad(dst, r.MAC)
	case RecordVL3:
		dst = appendAddr(dst, r.IP)
		dst = append(dst, 0, 0)
		dst = binary.BigEndian.AppendUint16(dst, r.VLAN)
	default:
		panic("varp: record of " + r.Type.String() + " cannot be sent")
	}
	return binary.BigEndian.AppendUint32(dst, r.VNet)
}

// parseRecord reads the record at the start of b, and returns its length.
func parseRecord(b []byte) (Record, int, error) {
	if len(b) < 4 {
		return Record{}, 0, fmt.Errorf("%s: %d bytes after the last record: %w", OpLogAck, len(b), ErrBadBody)
	}
	r := Record{Type: RecordType(binary.BigEndian.Uint32(b))}
	n := r.Size()
	if n == 0 {
		return Record{}, 0, fmt.Errorf("%s: %s is not of version 1: %w", OpLogAck, r.Type, ErrBadBody)
	}
	if len(b) < n {
		return Record{}, 0, fmt.Errorf("%s: %s record cut off after %d bytes: %w", OpLogAck, r.Type, len(b), ErrBadBody)
	}
	r.ID = log.UUID(b[4:20])
	if r.Type == RecordVL2 {
		r.MAC = log.MAC(b[20:26])
	} else {
		r.IP = addrAt(b[20:])
		r.VLAN = binary.BigEndian.Uint16(b[38:])
	}
	r.VNet = binary.BigEndian.Uint32(b[n-4:])
	return r, n, nil
}

// AppendLogAck appends a LOG_ACK. It panics on a record of an unknown type.
// Body (svp_log_ack_t):
//
//	0        4
//	| status | records …
func AppendLogAck(dst []byte, id uint32, status Status, records []Record) []byte {
	start := len(dst)
	dst = begin(dst, OpLogAck, id)
	dst = binary.BigEndian.AppendUint32(dst, uint32(status))
	for i := range records {
		dst = records[i].appendTo(dst)
	}
	return finish(dst, start)
}

// ParseLogAck reads the body of a LOG_ACK and appends its records to dst. The batch is
// checked as a whole: on an error dst is returned unchanged.
func ParseLogAck(body []byte, dst []Record) (Status, []Record, error) {
	if err := wantBody(OpLogAck, body, statusSize); err != nil {
		return 0, dst, err
	}
	status, rest, had := Status(binary.BigEndian.Uint32(body)), body[statusSize:], len(dst)
	for len(rest) > 0 {
		r, n, err := parseRecord(rest)
		if err != nil {
			return 0, dst[:had], err
		}
		dst, rest = append(dst, r), rest[n:]
	}
	return status, dst, nil
}

// fitting returns how many of records, from the first, fit into budget bytes.
func fitting(records []Record, budget int) int {
	for i := range records {
		if budget -= records[i].Size(); budget < 0 {
			return i
		}
	}
	return len(records)
}
