package varp

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

// The clients of this file are written from spec/svp.md alone, section 2 for
// illumos and section 4 for linux-cn-varpd, and use nothing of our codec: they
// would not notice a mistake that both of its sides make.

// legacyRequest is a message as section 1.1 has it.
func legacyRequest(op uint16, id uint32, body []byte) []byte {
	b := make([]byte, 16, 16+len(body))
	binary.BigEndian.PutUint16(b[0:], 1)
	binary.BigEndian.PutUint16(b[2:], op)
	binary.BigEndian.PutUint32(b[4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[8:], id) // in the order of an x86 host
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b))
	return b
}

func legacyVL3(vnet uint32, ip netip.Addr, sort uint32) []byte {
	a := ip.As16()
	body := append(a[:], 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(body[16:], sort)
	binary.BigEndian.PutUint32(body[20:], vnet)
	return body
}

func legacyVL2(vnet uint32, mac log.MAC) []byte {
	body := append(mac[:], 0xde, 0xad, 0, 0, 0, 0) // padding that is not cleared
	binary.BigEndian.PutUint32(body[8:], vnet)
	return body
}

// illumos does what libvarpd_svp does: it may talk to several servers, each
// over one connection with a log poller of its own, and spreads look-ups.
type illumos struct {
	me    netip.Addr
	tick  time.Duration // a second of the original's
	dice  *rand.Rand
	conns []*illumosConn
	next  int // round robin

	arp   map[vl3Key]log.MAC
	where map[vl2Key]netip.Addr
	asked int // requests of any sort
}

type illumosConn struct {
	nc     net.Conn
	lastID uint32
	empty  int // LOG_ACKs without a record in a row
	due    time.Time
	done   []byte // ids to be removed, once due
}

func newIllumos(me netip.Addr, addrs []string, tick time.Duration, seed uint64) (*illumos, error) {
	c := &illumos{me: me, tick: tick, dice: rand.New(rand.NewPCG(seed, 2)), arp: map[vl3Key]log.MAC{}, where: map[vl2Key]netip.Addr{}}
	for _, addr := range addrs {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.conns = append(c.conns, &illumosConn{nc: nc})
	}
	return c, nil
}

func (c *illumos) close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.nc.Close())
	}
	return errors.Join(errs...)
}

// query is one request and its answer. Anything but the answer that is due, of
// the right size (0: at most 1,024 bytes, the buffer of the log), is an error:
// illumos resets the connection.
func (c *illumos) query(conn *illumosConn, op uint16, body []byte, size int) ([]byte, error) {
	c.asked++
	conn.lastID = conn.lastID%(1<<31-1) + 1
	_ = conn.nc.SetDeadline(time.Now().Add(testPatience))
	if _, err := conn.nc.Write(legacyRequest(op, conn.lastID, body)); err != nil {
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
	msg := bytes.Clone(buf[:n])
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

func (c *illumos) pick() *illumosConn {
	c.next++
	return c.conns[c.next%len(c.conns)]
}

// resolve is the ARP of a guest that is proxied.
func (c *illumos) resolve(vnet uint32, ip netip.Addr, sort uint32) error {
	body, err := c.query(c.pick(), 5, legacyVL3(vnet, ip, sort), 28)
	if err != nil {
		return err
	}
	key := vl3Key{vnet, ip}
	switch status := binary.BigEndian.Uint32(body); status {
	case 0:
		mac := log.MAC(body[4:10])
		c.arp[key] = mac
		c.where[vl2Key{vnet, mac}] = netip.AddrFrom16([16]byte(body[12:28])).Unmap()
	case 2:
		delete(c.arp, key)
	default:
		return fmt.Errorf("VL3 of %s: status %d", ip, status)
	}
	return nil
}

// send is a frame of a guest: its MAC is looked up if it is not known.
func (c *illumos) send(vnet uint32, mac log.MAC) error {
	key := vl2Key{vnet, mac}
	if _, known := c.where[key]; known {
		return nil
	}
	body, err := c.query(c.pick(), 3, legacyVL2(vnet, mac), 20)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint16(body) == 0 {
		c.where[key] = netip.AddrFrom16([16]byte(body[4:20])).Unmap()
	}
	return nil
}

// poll does what is due with the log of each server.
func (c *illumos) poll() error {
	for _, conn := range c.conns {
		if time.Now().Before(conn.due) {
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

func (c *illumos) fetch(conn *illumosConn) error {
	me := c.me.As16()
	body, err := c.query(conn, 9, append([]byte{0, 0, 4, 0}, me[:]...), 0)
	if err != nil {
		return err
	}
	if status := binary.BigEndian.Uint32(body); status != 0 {
		return fmt.Errorf("LOG_ACK of status %d", status)
	}
	records, err := legacyRecords(body[4:])
	if err != nil {
		return err // the whole batch is refused
	}
	if len(records) == 0 {
		conn.empty++
		conn.due = time.Now().Add(5*c.tick + time.Duration(c.dice.Int64N(int64(5*c.tick))))
		return nil
	}
	conn.empty = 0
	for _, r := range records {
		if r.mac != (log.MAC{}) {
			delete(c.where, vl2Key{r.vnet, r.mac})
		} else if err := c.resolve(r.vnet, r.ip, 2); err != nil {
			return err
		}
		conn.done = append(conn.done, r.id...)
	}
	conn.due = time.Now().Add(c.tick)
	return nil
}

type legacyRecord struct {
	id   []byte
	vnet uint32
	mac  log.MAC
	ip   netip.Addr
}

func legacyRecords(b []byte) (records []legacyRecord, err error) {
	for len(b) > 0 {
		size := 0
		if len(b) >= 4 {
			size = map[uint32]int{1: 32, 2: 44}[binary.BigEndian.Uint32(b)]
		}
		if size == 0 || len(b) < size {
			return nil, fmt.Errorf("no record: %x", b)
		}
		r := legacyRecord{id: b[4:20], vnet: binary.BigEndian.Uint32(b[size-4:])}
		if size == 32 {
			r.mac = log.MAC(b[20:26])
		} else {
			r.ip = netip.AddrFrom16([16]byte(b[20:36])).Unmap()
		}
		records, b = append(records, r), b[size:]
	}
	return records, nil
}

// quiet reports whether nothing has come of any server for some time.
func (c *illumos) quiet() bool {
	for _, conn := range c.conns {
		if conn.empty < 2 {
			return false
		}
	}
	return true
}

// linuxVarpd does what linux-cn-varpd does: many requests under way, each with
// one read for the header and one for the body of its answer; answers out of
// order, in pieces, of another version or with a status that it does not know
// are the end of it. It looks at no CRC, and never asks for the log.
type linuxVarpd struct {
	nc     net.Conn
	lastID uint32
	open   []linuxOpen
	neighs map[vl3Key]linuxNeigh
}

type linuxOpen struct {
	id  uint32
	key vl3Key
}

type linuxNeigh struct {
	mac log.MAC
	at  netip.Addr
}

func newLinuxVarpd(addr string) (*linuxVarpd, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &linuxVarpd{nc: nc, neighs: map[vl3Key]linuxNeigh{}}
	_ = nc.SetDeadline(time.Now().Add(testPatience))
	if _, err = nc.Write(legacyRequest(1, 0xffffffff, nil)); err == nil {
		var head []byte
		if head, err = c.recv(16); err == nil && binary.BigEndian.Uint16(head[2:]) != 2 {
			err = fmt.Errorf("exit 253: no PONG: %x", head)
		}
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

// recv is one recv(2).
func (c *linuxVarpd) recv(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := c.nc.Read(b)
	if err == nil && got < n {
		err = fmt.Errorf("abort: %d bytes of %d in one piece", got, n)
	}
	return b, err
}

// ask sends a request and waits for nothing.
func (c *linuxVarpd) ask(key vl3Key) error {
	c.lastID++
	c.open = append(c.open, linuxOpen{c.lastID, key})
	_, err := c.nc.Write(legacyRequest(5, c.lastID, legacyVL3(key.vnet, key.ip, 1)))
	return err
}

// answers takes the answers to all that was asked.
func (c *linuxVarpd) answers() error {
	_ = c.nc.SetDeadline(time.Now().Add(testPatience))
	for ; len(c.open) > 0; c.open = c.open[1:] {
		head, err := c.recv(16)
		if err != nil {
			return err
		}
		body, err := c.recv(int(binary.BigEndian.Uint32(head[4:])))
		if err != nil {
			return err
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
			c.neighs[c.open[0].key] = linuxNeigh{log.MAC(body[4:10]), at.Unmap()}
		case 2:
			delete(c.neighs, c.open[0].key) // the kernel's entry fails by itself
		default:
			return fmt.Errorf("exit 237: status %d", status)
		}
	}
	return nil
}
