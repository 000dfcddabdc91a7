package svpclient

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"rutter/log"
)

// Illumos does what libvarpd_svp does: it may talk to several servers, each
// over one connection with a log poller of its own, and spreads look-ups over
// those that are there. A connection that is lost is made again, and what it
// had to acknowledge is forgotten; what the client has learned stays.
type Illumos struct {
	me    netip.Addr
	tick  time.Duration // a second of the original's
	dice  *rand.Rand
	conns []*illumosConn
	next  int // round robin

	ARP   map[Host]log.MAC    // who has an address
	Where map[Port]netip.Addr // the underlay address of a MAC
	UDP   map[Port]uint16     // and its port
	Asked int                 // requests of any sort
	Lost  int                 // connections that ended
}

type illumosConn struct {
	addr   string
	nc     net.Conn // nil: lost
	lastID uint32
	empty  int // LOG_ACKs without a record in a row
	due    time.Time
	done   []byte // ids to be removed, once due
}

// NewIllumos connects to servers as the node with the underlay address me. tick
// is what a second is to the original, seed that of its pauses.
func NewIllumos(me netip.Addr, servers []string, tick time.Duration, seed uint64) (*Illumos, error) {
	c := &Illumos{me: me, tick: tick, dice: rand.New(rand.NewPCG(seed, 2)), ARP: map[Host]log.MAC{}, Where: map[Port]netip.Addr{}, UDP: map[Port]uint16{}}
	for _, addr := range servers {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(lost(err), c.Close())
		}
		c.conns = append(c.conns, &illumosConn{addr: addr, nc: nc})
	}
	return c, nil
}

// Close ends its connections.
func (c *Illumos) Close() error {
	var errs []error
	for _, conn := range c.conns {
		if conn.nc != nil {
			errs = append(errs, conn.nc.Close())
		}
	}
	return errors.Join(errs...)
}

// Reconnect makes lost connections again where a server listens, once a tick; there
// is no news of a server that is away.
func (c *Illumos) Reconnect() {
	for _, conn := range c.conns {
		if conn.nc != nil || time.Now().Before(conn.due) {
			continue
		}
		if nc, err := net.Dial("tcp", conn.addr); err == nil {
			conn.nc = nc
		} else {
			conn.due = time.Now().Add(c.tick)
		}
	}
}

// query is one request and its answer. Anything but the answer that is due, of
// the right size (0: at most 1,024 bytes, the buffer of the log), is an error:
// illumos resets the connection.
func (c *Illumos) query(conn *illumosConn, op uint16, body []byte, size int) ([]byte, error) {
	answer, err := c.exchange(conn, op, body, size)
	if err = lost(err); errors.Is(err, ErrLost) {
		_ = conn.nc.Close()
		conn.nc, conn.empty, conn.done, conn.due = nil, 0, nil, time.Time{}
		c.Lost++
	}
	return answer, err
}

func (c *Illumos) exchange(conn *illumosConn, op uint16, body []byte, size int) ([]byte, error) {
	c.Asked++
	conn.lastID = conn.lastID%(1<<31-1) + 1
	_ = conn.nc.SetDeadline(time.Now().Add(patience))
	if _, err := conn.nc.Write(request(op, conn.lastID, body)); err != nil {
		return nil, err
	}
	buf := make([]byte, 16+1024)
	n, err := conn.nc.Read(buf)
	for err == nil && n < 16 {
		return nil, fmt.Errorf("header in pieces: %d bytes", n)
	}
	if err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(buf[4:]))
	if length > 1024 || size > 0 && length != size {
		return nil, fmt.Errorf("op %d: body of %d bytes, want %d", op, length, size)
	}
	for n < 16+length {
		more, err := conn.nc.Read(buf[n : 16+length])
		if err != nil {
			return nil, err
		}
		n += more
	}
	if n != 16+length {
		return nil, fmt.Errorf("%d bytes came that nobody asked for", n-16-length)
	}
	return conn.check(op, bytes.Clone(buf[:n]))
}

// check returns the body of an answer to op.
func (conn *illumosConn) check(op uint16, msg []byte) ([]byte, error) {
	sum := binary.BigEndian.Uint32(msg[12:])
	copy(msg[12:16], []byte{0, 0, 0, 0})
	switch {
	case binary.BigEndian.Uint16(msg) != 1:
		return nil, fmt.Errorf("version %d", binary.BigEndian.Uint16(msg))
	case binary.BigEndian.Uint16(msg[2:]) != op+1:
		return nil, fmt.Errorf("op %d answered by %d", op, binary.BigEndian.Uint16(msg[2:]))
	case binary.LittleEndian.Uint32(msg[8:]) != conn.lastID:
		return nil, fmt.Errorf("id %d answered by %d", conn.lastID, binary.LittleEndian.Uint32(msg[8:]))
	case crc32.ChecksumIEEE(msg) != sum:
		return nil, errors.New("wrong CRC")
	}
	return msg[16:], nil
}

// pick returns the next connection that is there.
func (c *Illumos) pick() (*illumosConn, error) {
	for range c.conns {
		c.next++
		if conn := c.conns[c.next%len(c.conns)]; conn.nc != nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("%w: none is left", ErrLost)
}

// Resolve is the ARP of a guest that is proxied. sort is 1 for IPv4, and 2 for
// IPv6 and whatever the log named.
func (c *Illumos) Resolve(h Host, sort uint32) error {
	conn, err := c.pick()
	if err != nil {
		return err
	}
	body, err := c.query(conn, 5, bodyVL3(h, sort), 28)
	if err != nil {
		return err
	}
	switch status := binary.BigEndian.Uint32(body); status {
	case 0:
		mac := log.MAC(body[4:10])
		c.ARP[h] = mac
		c.Where[Port{h.VNet, mac}] = netip.AddrFrom16([16]byte(body[12:28])).Unmap()
		c.UDP[Port{h.VNet, mac}] = binary.BigEndian.Uint16(body[10:])
	case 2:
		delete(c.ARP, h)
	default:
		return fmt.Errorf("VL3 of %s: status %d", h.IP, status)
	}
	return nil
}

// Send is a frame of a guest: its MAC is looked up if it is not known.
func (c *Illumos) Send(p Port) error {
	if _, known := c.Where[p]; known {
		return nil
	}
	conn, err := c.pick()
	if err != nil {
		return err
	}
	body, err := c.query(conn, 3, bodyVL2(p), 20)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint16(body) == 0 {
		c.Where[p] = netip.AddrFrom16([16]byte(body[4:20])).Unmap()
		c.UDP[p] = binary.BigEndian.Uint16(body[2:])
	}
	return nil
}

// Poll does what is due with the log of each server.
func (c *Illumos) Poll() error {
	for _, conn := range c.conns {
		if conn.nc == nil || time.Now().Before(conn.due) {
			continue
		}
		if len(conn.done) > 0 {
			n := binary.BigEndian.AppendUint32(nil, uint32(len(conn.done)/16))
			if _, err := c.query(conn, 11, append(n, conn.done...), 4); err != nil {
				return err
			}
			conn.done, conn.due = nil, time.Now().Add(c.tick)
			continue
		}
		if err := c.fetch(conn); err != nil {
			return err
		}
	}
	return nil
}

func (c *Illumos) fetch(conn *illumosConn) error {
	me := c.me.As16()
	body, err := c.query(conn, 9, append([]byte{0, 0, 4, 0}, me[:]...), 0)
	if err != nil {
		return err
	}
	if status := binary.BigEndian.Uint32(body); status != 0 {
		return fmt.Errorf("LOG_ACK of status %d", status)
	}
	batch, err := records(body[4:])
	if err != nil {
		return err // the whole batch is refused
	}
	if len(batch) == 0 {
		conn.empty++
		conn.due = time.Now().Add(5*c.tick + time.Duration(c.dice.Int64N(int64(5*c.tick))))
		return nil
	}
	conn.empty = 0
	var done []byte
	for _, r := range batch {
		if r.MAC != (log.MAC{}) {
			delete(c.Where, r.Port)
		} else if err := c.Resolve(Host{r.VNet, r.ip}, 2); err != nil {
			return err
		}
		done = append(done, r.id...)
	}
	if conn.nc != nil {
		conn.done, conn.due = done, time.Now().Add(c.tick)
	}
	return nil
}

// Unsettle has Quiet begin anew: what came before may have been of before.
func (c *Illumos) Unsettle() {
	for _, conn := range c.conns {
		conn.empty = 0
	}
}

// Quiet reports whether nothing has come of any server for some time.
func (c *Illumos) Quiet() bool {
	for _, conn := range c.conns {
		if conn.nc == nil || conn.empty < 2 {
			return false
		}
	}
	return true
}
