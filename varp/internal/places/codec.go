package places

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"rutter/log"
)

// Names of the formats: the first bytes of a file, of a question and of an answer
// between servers.
const (
	formatFile     = "rutter-svp-places-1\n"
	formatQuestion = "q1"
	formatAnswer   = "a1"
)

// Bounds of what is read, in entries.
const (
	maxClaims = 1 << 16
	maxIDs    = 1 << 16
	maxServer = 255 // bytes
)

// errFormat: the bytes are not of this format, or damaged.
var errFormat = errors.New("varp: places of clients cannot be read")

var table = crc32.MakeTable(crc32.Castagnoli)

// File is the content of a server's file of places. Chain is that of the log at Seq,
// and no place is above Seq. Server names the server whose file it is: places are what
// it may rely on, and no other one.
type File struct {
	Server  string // at most maxServer bytes
	Cluster log.UUID
	Seq     log.Seq
	Chain   log.ChainPrefix
	Places  []Place
}

// Encode returns the bytes of f.
func (f *File) Encode() []byte {
	b := append([]byte(formatFile), byte(min(len(f.Server), maxServer)))
	b = append(b, f.Server[:min(len(f.Server), maxServer)]...)
	b = append(b, f.Cluster[:]...)
	b = binary.AppendUvarint(b, uint64(f.Seq))
	b = append(b, f.Chain[:]...)
	b = binary.AppendUvarint(b, uint64(len(f.Places)))
	for i := range f.Places {
		b = appendPlace(b, &f.Places[i])
	}
	return seal(b)
}

// DecodeFile reads the bytes of a File.
func DecodeFile(b []byte) (f File, err error) {
	d, err := open(b, formatFile)
	if err != nil {
		return f, err
	}
	f.Server = string(d.bytes(int(d.bytes(1)[0])))
	copy(f.Cluster[:], d.bytes(16))
	f.Seq = log.Seq(d.number())
	copy(f.Chain[:], d.bytes(8))
	for range d.count(maxClaims) {
		f.Places = append(f.Places, d.place())
	}
	return f, d.end()
}

// Acks are ids that a node acknowledged to a server that had not delivered them.
type Acks struct {
	CN  netip.Addr
	IDs []log.UUID
}

// Again asks a server to give a node the records above From, up to and with To, again.
type Again struct {
	CN       netip.Addr
	From, To log.Seq
}

// Question is what a server asks another: what is new since a version of the other's
// process Epoch; zero asks for everything.
type Question struct {
	Epoch, Since uint64
	Again        []Again
}

// Encode returns the bytes of q.
func (q *Question) Encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte(formatQuestion), q.Epoch)
	b = binary.AppendUvarint(b, q.Since)
	b = binary.AppendUvarint(b, uint64(len(q.Again)))
	for _, a := range q.Again {
		b = appendAddr(b, a.CN)
		b = binary.AppendUvarint(b, uint64(a.From))
		b = binary.AppendUvarint(b, uint64(a.To))
	}
	return seal(b)
}

// DecodeQuestion reads the bytes of a Question.
func DecodeQuestion(b []byte) (q Question, err error) {
	d, err := open(b, formatQuestion)
	if err != nil {
		return q, err
	}
	q.Epoch, q.Since = d.fixed(), d.number()
	for range d.count(maxClaims) {
		q.Again = append(q.Again, Again{d.addr(), log.Seq(d.number()), log.Seq(d.number())})
	}
	return q, d.end()
}

// Answer is what a server tells of its clients: those that are new up to a version of
// its process Epoch.
type Answer struct {
	Cluster      log.UUID
	Epoch, Until uint64
	Claims       []Claim
	Acks         []Acks
}

// Encode returns the bytes of a at a time: that of deliveries is encoded as their age
// in milliseconds, and somewhat more, because two machines have no clock in common.
func (a *Answer) Encode(now time.Time) []byte {
	b := append([]byte(formatAnswer), a.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, a.Epoch)
	b = binary.AppendUvarint(b, a.Until)
	b = binary.AppendUvarint(b, uint64(len(a.Claims)))
	for i := range a.Claims {
		c := &a.Claims[i]
		b = appendPlace(b, &c.Place)
		b = binary.AppendUvarint(b, uint64(len(c.Deliveries)))
		for _, one := range c.Deliveries {
			age := uint64(0) // not known
			if !one.At.IsZero() {
				age = uint64(max(0, now.Sub(one.At)).Milliseconds())
				age += 2 + age/1000 // two machines' clocks run at different rates
			}
			b = binary.AppendUvarint(b, uint64(one.Newest))
			b = binary.AppendUvarint(b, age)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(a.Acks)))
	for _, k := range a.Acks {
		b = appendAddr(b, k.CN)
		b = binary.AppendUvarint(b, uint64(len(k.IDs)))
		for _, id := range k.IDs {
			b = append(b, id[:]...)
		}
	}
	return seal(b)
}

// DecodeAnswer reads the bytes of an Answer to a question that was sent at a time. No
// delivery was earlier than its age before that: it may have been later.
func DecodeAnswer(b []byte, asked time.Time) (a Answer, err error) {
	d, err := open(b, formatAnswer)
	if err != nil {
		return a, err
	}
	copy(a.Cluster[:], d.bytes(16))
	a.Epoch, a.Until = d.fixed(), d.number()
	for range d.count(maxClaims) {
		c := Claim{Place: d.place()}
		for range d.count(maxDeliveries) {
			one := Delivery{Newest: log.Seq(d.number())}
			if age := d.number(); age > 0 {
				one.At = asked.Add(-time.Duration(min(age, 1<<40)) * time.Millisecond)
			}
			c.Deliveries = append(c.Deliveries, one)
		}
		a.Claims = append(a.Claims, c)
	}
	for range d.count(maxClaims) {
		k := Acks{CN: d.addr()}
		for range d.count(maxIDs) {
			k.IDs = append(k.IDs, log.UUID(d.bytes(16)))
		}
		a.Acks = append(a.Acks, k)
	}
	return a, d.end()
}

func seal(b []byte) []byte { return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, table)) }

func appendAddr(b []byte, a netip.Addr) []byte {
	raw := a.As16()
	return append(b, raw[:]...)
}

func appendPlace(b []byte, p *Place) []byte {
	b = appendAddr(b, p.CN)
	b = append(b, p.Node[:]...)
	b = binary.AppendUvarint(b, uint64(p.Seq))
	b = binary.AppendUvarint(b, uint64(len(p.VNets)))
	last := uint32(0)
	for _, vnet := range p.VNets {
		b = binary.AppendUvarint(b, uint64(vnet-last))
		last = vnet
	}
	return b
}

// decoder reads values from the front of b. After the first failure it returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

// open checks the name of a format and the checksum.
func open(b []byte, format string) (*decoder, error) {
	n := len(b) - 4
	if n < len(format) || string(b[:len(format)]) != format {
		return nil, fmt.Errorf("%w: %d bytes that do not begin with %q", errFormat, len(b), format)
	}
	if binary.BigEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], table) {
		return nil, fmt.Errorf("%w: checksum", errFormat)
	}
	return &decoder{b: b[len(format):n]}, nil
}

func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return fmt.Errorf("%w: %d bytes too many, or too few", errFormat, len(d.b))
	}
	return nil
}

func (d *decoder) bytes(n int) []byte {
	if len(d.b) < n || d.bad {
		d.bad = true
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) fixed() uint64 { return binary.BigEndian.Uint64(d.bytes(8)) }

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of entries that follow, each of at least one byte.
func (d *decoder) count(most int) int {
	n := d.number()
	if n > uint64(most) || n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) addr() netip.Addr { return netip.AddrFrom16([16]byte(d.bytes(16))).Unmap() }

func (d *decoder) place() Place {
	p := Place{CN: d.addr()}
	copy(p.Node[:], d.bytes(16))
	p.Seq = log.Seq(d.number())
	last := uint64(0)
	for range d.count(MaxVNets) {
		last += d.number()
		d.bad = d.bad || last > 1<<32-1
		p.VNets = append(p.VNets, uint32(last))
	}
	return p
}
