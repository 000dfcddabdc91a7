package log

import "net/netip"

// Size is how large an object is.
type Size struct {
	Bytes        int // what it takes encoded, or a little more
	Unknown      int // bytes of fields that this program does not know
	Longest      int // elements of its longest list; a route is one
	LongestField string
}

// Measure returns the size of an object without encoding it.
func Measure(o Object) Size {
	m := measurer{Size{Bytes: 1 + longHeader}}
	visit(o, &m)
	for _, raw := range o.tail().raw {
		m.Unknown += len(raw)
	}
	m.Bytes += m.Unknown
	return m.Size
}

const (
	// longHeader and numberBytes are what msgpack takes at most for the header of a
	// text or list, and for a number.
	longHeader  = 5
	numberBytes = 9

	// EmptyResultBytes is what an encoded result without ids takes at most, and
	// IDHeaderBytes what each of them takes beside its own bytes.
	EmptyResultBytes = 64
	IDHeaderBytes    = 3
)

// measurer is the visitor that adds up what the fields take.
type measurer struct{ Size }

func (m *measurer) list(name string, n, each int) {
	m.Bytes += longHeader + n*each
	if n > m.Longest {
		m.Longest, m.LongestField = n, name
	}
}

func (m *measurer) str(_ string, p *string)            { m.Bytes += longHeader + len(*p) }
func (m *measurer) boolean(string, *bool)              { m.Bytes++ }
func (m *measurer) u32(string, *uint32)                { m.Bytes += longHeader }
func (m *measurer) u64(string, *uint64)                { m.Bytes += numberBytes }
func (m *measurer) time(string, *Time)                 { m.Bytes += numberBytes }
func (m *measurer) uuid(string, *UUID)                 { m.Bytes += 2 + 16 }
func (m *measurer) mac(string, *MAC)                   { m.Bytes += 2 + 6 }
func (m *measurer) addr(string, *netip.Addr)           { m.Bytes += 2 + 16 }
func (m *measurer) prefix(string, *netip.Prefix)       { m.Bytes += 2 + 17 }
func (m *measurer) uuids(name string, p *[]UUID)       { m.list(name, len(*p), 2+16) }
func (m *measurer) macs(name string, p *[]MAC)         { m.list(name, len(*p), 2+6) }
func (m *measurer) u32s(name string, p *[]uint32)      { m.list(name, len(*p), longHeader) }
func (m *measurer) addrs(name string, p *[]netip.Addr) { m.list(name, len(*p), 2+16) }

func (m *measurer) strs(name string, p *[]string) {
	m.list(name, len(*p), longHeader)
	for _, s := range *p {
		m.Bytes += len(s)
	}
}

func (m *measurer) routes(name string, p *Routes) {
	m.list(name, len(*p), 2*longHeader)
	for _, r := range *p {
		m.Bytes += len(r.Dst) + len(r.Gateway)
	}
}
