package log

import "net/netip"

// The limits of what a change may be, and of what becomes of one. All servers
// know them when they decide, so that each refuses what another would; the server
// that a client asked knows them too, and refuses what could never be accepted
// before it is written. Limits has them with their names and reasons.
//
// Those of feature version 1 are of the programs that had no other: a change is
// measured by the rest from FeatureContained on.
const (
	MaxOps         = 1024    // operations in one change
	MaxEventBytes  = 1 << 20 // one encoded event
	MaxChangeBytes = 1 << 20 // one encoded change
	MaxActorBytes  = 256
	MaxNameBytes   = 64   // names, aliases, models, states
	MaxTextBytes   = 1024 // descriptions, comments and other text

	MaxIDBytes      = 128       // the id of an operation's object
	MaxSetNames     = 128       // fields that one operation names
	MaxOptions      = 8         // options of one operation
	MaxListElements = 1024      // of any list that an object has
	MaxUnknownBytes = 16 << 10  // of an object: fields that this program does not know
	MaxObjectBytes  = 384 << 10 // one encoded object
	MaxChangeEvents = 16 << 20  // all encoded events of one change

	MaxTickets       = 65536 // in the log, those that have ended too
	MaxServerTickets = 8192  // of one server

	MaxQuoteBytes   = 128      // of what a client sent, in one message about it
	MaxMessageBytes = 4 << 10  // one text of a refusal
	MaxElements     = 64       // fields that one refusal names
	MaxValues       = 64       // values that a refusal names of one field
	MaxResultBytes  = 64 << 10 // one encoded result
)

// Limit is one of the limits, as docs/safety.md has it.
type Limit struct {
	Name  string // as refusals name it
	Value int
	Unit  string
	Why   string
}

// Limits are all of them.
var Limits = []Limit{
	{"change_bytes", MaxChangeBytes, "bytes", "a change is held in memory many times over: in queues, in raft's log, on each connection"},
	{"operations", MaxOps, "operations of a change", "one change is decided and applied in one step, in which nobody else is served"},
	{"actor_bytes", MaxActorBytes, "bytes", "each event of the change carries it"},
	{"id_bytes", MaxIDBytes, "bytes of an operation's id", "the longest id there can be, a revocation's, has 80"},
	{"set_names", MaxSetNames, "fields that an operation names", "no kind has half as many; each that is refused is an element of the answer"},
	{"name_bytes", MaxNameBytes, "bytes", "names stand in indexes, metrics and kernel objects"},
	{"text_bytes", MaxTextBytes, "bytes", "each event of an object carries all its texts, twice when they change"},
	{"options", MaxOptions, "options of an operation", "there are six"},
	{"list_elements", MaxListElements, "elements of a list in an object", "an event shows the whole list, and an index may have a row for each element"},
	{"unknown_bytes", MaxUnknownBytes, "bytes of fields of newer programs in one object", "they are kept and sent on unread, so that nothing else bounds them"},
	{"object_bytes", MaxObjectBytes, "bytes", "an update's event has an object and its old values, and both must fit one event"},
	{"event_bytes", MaxEventBytes, "bytes", "a frame of the feed holds one event, and every reader makes room for one"},
	{"change_events_bytes", MaxChangeEvents, "bytes of all events of one change", "a stream never splits a change: who reads it holds all of it"},
	{"vm_properties_bytes", MaxProperties, "bytes", "VMAPI's other fields of a VM: an event of the VM has them twice, and all servers hold them in memory"},
	{"cn_vm_properties_bytes", MaxNodeProperties, "bytes of what a compute node reports of its own VM", "a node that lies about all VMs that it may have fills no server"},
	{"reverts", MaxReverts, "ranges of entries that a change takes back", "each event of the change carries them; neighbours are joined until they fit"},
	{"labels", MaxLabels, "labels of an object", "each event of the object carries them, and all servers hold them in memory"},
	{"label_key_bytes", MaxLabelKeyBytes, "bytes", "labels are for short words that select objects"},
	{"label_value_bytes", MaxLabelValueBytes, "bytes", "labels are for short words that select objects"},
	{"tickets", MaxTickets, "tickets of CNAPI's waitlist", "all servers hold them in memory; the server that is asked checks it, before it is written"},
	{"server_tickets", MaxServerTickets, "tickets of one server, or of none", "each list of them is sorted whole; checked as the one before"},
	{"quote_bytes", MaxQuoteBytes, "bytes of input that a message quotes", "enough to find what was meant"},
	{"message_bytes", MaxMessageBytes, "bytes of one text of a refusal", "the longest that is meant, a list of 64 networks, has 2,500"},
	{"elements", MaxElements, "fields that a refusal names", "nobody reads more; it says how many more there are"},
	{"values", MaxValues, "values that a refusal names of a field", "nobody reads more; it says how many more there are"},
	{"result_bytes", MaxResultBytes, "bytes", "each server remembers the results of 200,000 changes for their retries"},
}

// Size is how large an object is.
type Size struct {
	Bytes        int // what it takes encoded, or a little more
	Unknown      int // bytes of fields that this program does not know, or could not read
	Longest      int // elements of its longest list; a route is one
	LongestField string
}

// Measure returns the size of an object, mostly without encoding it. It is
// what a program of a feature version measures, which does not know fields that came later
// (Kind.FieldsAfter): servers agree on a size, because refusals name it.
func Measure(o Object, feature uint32) Size {
	m := measurer{Size: Size{Bytes: 1 + longHeader}, feature: feature}
	visit(o, &m)
	m.Unknown = lateBytes(o, feature) + unreadBytes(o, feature)
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
type measurer struct {
	Size
	feature uint32 // without the fields that came later
}

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
