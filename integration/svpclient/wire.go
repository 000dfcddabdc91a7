package svpclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"rutter/log"
)

// Port is a MAC of a vnet, and Host an address of one: what clients remember.
type (
	Port struct {
		VNet uint32
		MAC  log.MAC
	}
	Host struct {
		VNet uint32
		IP   netip.Addr
	}
)

// ErrLost is wrapped when a connection ended, or could not be made. It is a fault of
// the protocol only if the test did not cause it.
var ErrLost = errors.New("svpclient: connection lost")

// patience bounds each wait for an answer; a server that works never spends it.
const patience = 20 * time.Second

// lost adds ErrLost to what a connection ends with.
func lost(err error) error {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, net.ErrClosed} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer within %s: %w", patience, err)
	}
	return err
}

// request is a message as section 1.1 has it.
func request(op uint16, id uint32, body []byte) []byte {
	b := make([]byte, 16, 16+len(body))
	binary.BigEndian.PutUint16(b[0:], 1)
	binary.BigEndian.PutUint16(b[2:], op)
	binary.BigEndian.PutUint32(b[4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[8:], id) // in the order of an x86 host
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b))
	return b
}

func bodyVL3(h Host, sort uint32) []byte {
	a := h.IP.As16()
	body := append(a[:], 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(body[16:], sort)
	binary.BigEndian.PutUint32(body[20:], h.VNet)
	return body
}

func bodyVL2(p Port) []byte {
	body := append(p.MAC[:], 0xde, 0xad, 0, 0, 0, 0) // padding that is not cleared
	binary.BigEndian.PutUint32(body[8:], p.VNet)
	return body
}

type record struct {
	id []byte
	Port
	ip netip.Addr
}

// records takes a LOG_ACK's records apart.
func records(b []byte) (all []record, err error) {
	for len(b) > 0 {
		size := 0
		if len(b) >= 4 {
			size = map[uint32]int{1: 32, 2: 44}[binary.BigEndian.Uint32(b)]
		}
		if size == 0 || len(b) < size {
			return nil, fmt.Errorf("no record: %x", b)
		}
		r := record{id: b[4:20], Port: Port{VNet: binary.BigEndian.Uint32(b[size-4:])}}
		if size == 32 {
			r.MAC = log.MAC(b[20:26])
		} else {
			r.ip = netip.AddrFrom16([16]byte(b[20:36])).Unmap()
		}
		all, b = append(all, r), b[size:]
	}
	return all, nil
}
