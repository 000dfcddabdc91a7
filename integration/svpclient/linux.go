package svpclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"rutter/log"
)

// Linux does what linux-cn-varpd does: many requests under way, each with one
// read for the header and one for the body of its answer; answers out of order,
// in pieces, of another version or with a status that it does not know are the
// end of it, and so is a connection that ends. It looks at no CRC, and never asks
// for the log.
type Linux struct {
	nc     net.Conn
	lastID uint32
	open   []linuxOpen

	Neighs map[Host]Neigh // what it put into its kernel
}

type linuxOpen struct {
	id   uint32
	host Host
}

// Neigh is what the kernel knows of an address.
type Neigh struct {
	MAC log.MAC
	At  netip.Addr
}

// NewLinux connects to a server, which must answer its PING.
func NewLinux(addr string) (*Linux, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, lost(err)
	}
	c := &Linux{nc: nc, Neighs: map[Host]Neigh{}}
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err = nc.Write(request(1, 0xffffffff, nil)); err == nil {
		var head []byte
		if head, err = c.recv(16); err == nil && binary.BigEndian.Uint16(head[2:]) != 2 {
			err = fmt.Errorf("exit 253: no PONG: %x", head)
		}
	}
	if err != nil {
		return nil, errors.Join(lost(err), nc.Close())
	}
	return c, nil
}

// Close ends its connection.
func (c *Linux) Close() error { return c.nc.Close() }

// Asked is how many requests it sent, its PING not counted.
func (c *Linux) Asked() uint32 { return c.lastID }

// recv is one recv(2).
func (c *Linux) recv(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := c.nc.Read(b)
	if err == nil && got < n {
		err = fmt.Errorf("abort: %d bytes of %d in one piece", got, n)
	}
	return b, err
}

// Ask sends a request and waits for nothing.
func (c *Linux) Ask(h Host) error {
	c.lastID++
	c.open = append(c.open, linuxOpen{c.lastID, h})
	_, err := c.nc.Write(request(5, c.lastID, bodyVL3(h, 1)))
	return lost(err)
}

// Answers takes the answers to all that was asked.
func (c *Linux) Answers() error {
	_ = c.nc.SetDeadline(time.Now().Add(patience))
	for ; len(c.open) > 0; c.open = c.open[1:] {
		head, err := c.recv(16)
		if err != nil {
			return lost(err)
		}
		body, err := c.recv(int(binary.BigEndian.Uint32(head[4:])))
		if err != nil {
			return lost(err)
		}
		if id := binary.LittleEndian.Uint32(head[8:]); id != c.open[0].id || binary.BigEndian.Uint16(head) != 1 || len(body) != 28 {
			return fmt.Errorf("abort 134: answer %x %x to id %d", head, body, c.open[0].id)
		}
		switch status := binary.BigEndian.Uint32(body); status {
		case 0:
			at := netip.AddrFrom16([16]byte(body[12:28]))
			if !at.Is4In6() {
				return fmt.Errorf("abort 134: underlay %s", at)
			}
			c.Neighs[c.open[0].host] = Neigh{log.MAC(body[4:10]), at.Unmap()}
		case 2:
			delete(c.Neighs, c.open[0].host) // the kernel's entry fails by itself
		default:
			return fmt.Errorf("exit 237: status %d", status)
		}
	}
	return nil
}
