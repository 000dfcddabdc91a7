package varp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"rutter/log"
)

// Lengths of the bodies, in bytes (spec/svp.md §1.2).
const (
	vl2ReqSize   = 12
	vl2AckSize   = 20
	vl3ReqSize   = 24
	vl3AckSize   = 28
	logReqSize   = 20
	statusSize   = 4 // LOG_RM_ACK, and what LOG_ACK begins with
	logRMHead    = 4
	shootdownLen = 12
	uuidSize     = 16
)

// Types of a VL3_REQ (libvarpd_svp_prot.h). A server must not look at them:
// illumos sends IPv6 with an IPv4-mapped address, linux-cn-varpd 0x00020000.
const (
	L3TypeIPv4 uint32 = 1
	L3TypeIPv6 uint32 = 2
)

// Underlay is the address at which a compute node receives VXLAN packets.
type Underlay struct {
	Addr netip.Addr // IPv4 plain or mapped, or IPv6; decoded IPv4 is plain
	Port uint16     // UDP; usually 4789
}

// VL2Req asks for the underlay of a MAC. Body (svp_vl2_req_t):
//
//	0     6     8      12
//	| mac | pad | vnet |
type VL2Req struct {
	MAC  log.MAC
	VNet uint32
}

// Append appends r as a message to dst.
func (r VL2Req) Append(dst []byte, id uint32) []byte {
	start := len(dst)
	dst = begin(dst, OpVL2Req, id)
	dst = appendMACPad(dst, r.MAC)
	dst = binary.BigEndian.AppendUint32(dst, r.VNet)
	return finish(dst, start)
}

// ParseVL2Req reads the body of a VL2_REQ. Padding, which illumos does not
// clear, and bytes after the 12th are ignored.
func ParseVL2Req(body []byte) (VL2Req, error) {
	if err := wantBody(OpVL2Req, body, vl2ReqSize); err != nil {
		return VL2Req{}, err
	}
	return VL2Req{MAC: log.MAC(body[0:6]), VNet: binary.BigEndian.Uint32(body[8:])}, nil
}

// VL2Ack answers VL2Req. Body (svp_vl2_ack_t); its status alone is 2 bytes:
//
//	0        2      4             20
//	| status | port | underlay ip |
type VL2Ack struct {
	Status   Status
	Underlay Underlay // zero unless Status is OK
}

// Append appends a as a message to dst. Unless the status is OK all other
// fields are written as zero.
func (a VL2Ack) Append(dst []byte, id uint32) []byte {
	if a.Status != StatusOK {
		a = VL2Ack{Status: a.Status}
	}
	start := len(dst)
	dst = begin(dst, OpVL2Ack, id)
	dst = binary.BigEndian.AppendUint16(dst, uint16(a.Status))
	dst = appendUnderlay(dst, a.Underlay)
	return finish(dst, start)
}

// ParseVL2Ack reads the body of a VL2_ACK.
func ParseVL2Ack(body []byte) (VL2Ack, error) {
	if err := wantExactly(OpVL2Ack, body, vl2AckSize); err != nil {
		return VL2Ack{}, err
	}
	a := VL2Ack{Status: Status(binary.BigEndian.Uint16(body))}
	if a.Status == StatusOK {
		a.Underlay = underlayAt(body[2:])
	}
	return a, nil
}

// VL3Req asks for the MAC and the underlay of an overlay address. Body
// (svp_vl3_req_t):
//
//	0    16     20     24
//	| ip | type | vnet |
type VL3Req struct {
	IP   netip.Addr // decoded IPv4 is plain, never mapped
	Type uint32     // L3TypeIPv4 or L3TypeIPv6, but see there
	VNet uint32
}

// Append appends r as a message to dst.
func (r VL3Req) Append(dst []byte, id uint32) []byte {
	start := len(dst)
	dst = begin(dst, OpVL3Req, id)
	dst = appendAddr(dst, r.IP)
	dst = binary.BigEndian.AppendUint32(dst, r.Type)
	dst = binary.BigEndian.AppendUint32(dst, r.VNet)
	return finish(dst, start)
}

// ParseVL3Req reads the body of a VL3_REQ. The type is not checked, and bytes
// after the 24th are ignored.
func ParseVL3Req(body []byte) (VL3Req, error) {
	if err := wantBody(OpVL3Req, body, vl3ReqSize); err != nil {
		return VL3Req{}, err
	}
	return VL3Req{
		IP:   addrAt(body),
		Type: binary.BigEndian.Uint32(body[16:]),
		VNet: binary.BigEndian.Uint32(body[20:]),
	}, nil
}

// VL3Ack answers VL3Req. Body (svp_vl3_ack_t):
//
//	0        4     10     12            28
//	| status | mac | port | underlay ip |
type VL3Ack struct {
	Status   Status
	MAC      log.MAC  // zero unless Status is OK
	Underlay Underlay // zero unless Status is OK
}

// Append appends a as a message to dst. Unless the status is OK all other
// fields are written as zero.
func (a VL3Ack) Append(dst []byte, id uint32) []byte {
	if a.Status != StatusOK {
		a = VL3Ack{Status: a.Status}
	}
	start := len(dst)
	dst = begin(dst, OpVL3Ack, id)
	dst = binary.BigEndian.AppendUint32(dst, uint32(a.Status))
	dst = append(dst, a.MAC[:]...)
	dst = appendUnderlay(dst, a.Underlay)
	return finish(dst, start)
}

// ParseVL3Ack reads the body of a VL3_ACK.
func ParseVL3Ack(body []byte) (VL3Ack, error) {
	if err := wantExactly(OpVL3Ack, body, vl3AckSize); err != nil {
		return VL3Ack{}, err
	}
	a := VL3Ack{Status: Status(binary.BigEndian.Uint32(body))}
	if a.Status == StatusOK {
		a.MAC = log.MAC(body[4:10])
		a.Underlay = underlayAt(body[10:])
	}
	return a, nil
}

// LogReq asks for the shootdown log of a compute node. Body (svp_log_req_t):
//
//	0       4             20
//	| count | underlay ip |
type LogReq struct {
	Count uint32     // the longest wanted LOG_ACK body in bytes, including the status
	CN    netip.Addr // the asking node's underlay address; decoded IPv4 is plain
}

// Append appends r as a message to dst.
func (r LogReq) Append(dst []byte, id uint32) []byte {
	start := len(dst)
	dst = begin(dst, OpLogReq, id)
	dst = binary.BigEndian.AppendUint32(dst, r.Count)
	dst = appendAddr(dst, r.CN)
	return finish(dst, start)
}

// ParseLogReq reads the body of a LOG_REQ; bytes after the 20th are ignored.
func ParseLogReq(body []byte) (LogReq, error) {
	if err := wantBody(OpLogReq, body, logReqSize); err != nil {
		return LogReq{}, err
	}
	return LogReq{Count: binary.BigEndian.Uint32(body), CN: addrAt(body[4:])}, nil
}

// AppendLogRM appends a LOG_RM, which acknowledges the records with these ids. Body
// (svp_lrm_req_t):
//
//	0   4         20
//	| n | uuid 1 | … uuid n
func AppendLogRM(dst []byte, id uint32, ids []log.UUID) []byte {
	start := len(dst)
	dst = begin(dst, OpLogRM, id)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(ids)))
	for i := range ids {
		dst = append(dst, ids[i][:]...)
	}
	return finish(dst, start)
}

// ParseLogRM appends the ids in the body of a LOG_RM to dst. The length must
// agree with the count exactly.
func ParseLogRM(body []byte, dst []log.UUID) ([]log.UUID, error) {
	if err := wantBody(OpLogRM, body, logRMHead); err != nil {
		return dst, err
	}
	n, ids := binary.BigEndian.Uint32(body), body[logRMHead:]
	if uint64(len(ids)) != uint64(n)*uuidSize {
		return dst, fmt.Errorf("%s: %d ids announced, %d bytes of ids sent: %w", OpLogRM, n, len(ids), ErrBadBody)
	}
	for ; len(ids) > 0; ids = ids[uuidSize:] {
		dst = append(dst, log.UUID(ids[:uuidSize]))
	}
	return dst, nil
}

// AppendLogRMAck appends a LOG_RM_ACK. Body (svp_lrm_ack_t):
//
//	0        4
//	| status |
func AppendLogRMAck(dst []byte, id uint32, status Status) []byte {
	start := len(dst)
	dst = begin(dst, OpLogRMAck, id)
	dst = binary.BigEndian.AppendUint32(dst, uint32(status))
	return finish(dst, start)
}

// ParseLogRMAck reads the body of a LOG_RM_ACK.
func ParseLogRMAck(body []byte) (Status, error) {
	if err := wantExactly(OpLogRMAck, body, statusSize); err != nil {
		return 0, err
	}
	return Status(binary.BigEndian.Uint32(body)), nil
}

// Shootdown tells a compute node that it sent a packet to the wrong node. It was meant
// for UDP between nodes; no program is known to send it (spec/svp.md §1.2). Body
// (svp_shootdown_t):
//
//	0     6     8      12
//	| mac | pad | vnet |
type Shootdown struct {
	MAC  log.MAC
	VNet uint32
}

// Append appends s as a message to dst.
func (s Shootdown) Append(dst []byte, id uint32) []byte {
	start := len(dst)
	dst = begin(dst, OpShoot, id)
	dst = appendMACPad(dst, s.MAC)
	dst = binary.BigEndian.AppendUint32(dst, s.VNet)
	return finish(dst, start)
}

// ParseShootdown reads the body of a SHOOTDOWN.
func ParseShootdown(body []byte) (Shootdown, error) {
	if err := wantExactly(OpShoot, body, shootdownLen); err != nil {
		return Shootdown{}, err
	}
	return Shootdown{MAC: log.MAC(body[0:6]), VNet: binary.BigEndian.Uint32(body[8:])}, nil
}

// appendAddr appends the 16 bytes of an address: IPv4 as ::ffff:a.b.c.d, the
// zero Addr as :: .
func appendAddr(dst []byte, a netip.Addr) []byte {
	b := a.As16()
	return append(dst, b[:]...)
}

// addrAt reads the address at the start of b, IPv4-mapped ones as plain IPv4.
func addrAt(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b[:16])).Unmap() }

// appendUnderlay appends port and address, which are always together.
func appendUnderlay(dst []byte, u Underlay) []byte {
	dst = binary.BigEndian.AppendUint16(dst, u.Port)
	return appendAddr(dst, u.Addr)
}

func underlayAt(b []byte) Underlay {
	return Underlay{Port: binary.BigEndian.Uint16(b), Addr: addrAt(b[2:])}
}

func appendMACPad(dst []byte, m log.MAC) []byte {
	dst = append(dst, m[:]...)
	return append(dst, 0, 0)
}
