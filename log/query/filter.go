package query

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// MaxValues bounds the values of one parameter, because each may be compared with every
// entry of a log.
const MaxValues = 64

// Filter selects entries. The values of one field are alternatives. An entry must fit
// all fields. A field without values fits every entry. The zero Filter selects every
// entry.
type Filter struct {
	Kinds   []log.Kind
	Actions []log.Action
	// Objects are ids of objects, as log.Object.ID has them.
	Objects []string
	// Owners select objects with one of these owners, before or after the event: in
	// owner_uuid or in owner_uuids.
	Owners []log.UUID
	// VNets and CNs select by the event's scopes: those of the object before
	// and after it.
	VNets []uint32
	CNs   []log.UUID
	// Networks select the network itself and the NICs that are on it, before
	// or after the event.
	Networks []log.UUID
	// Addresses select NICs that have one of them, before or after the event.
	Addresses []netip.Addr
	Actors    []string
	// Paths select updates that changed such a field, by its JSON name.
	Paths []string

	Since    log.Time // not before this time; 0: no bound
	Until    log.Time // not after this time; 0: no bound
	UntilSeq log.Seq  // not after this seq; 0: no bound
	// TimeSet is the seq of the last entry by which an operator set the log's time; 0:
	// there is none. Only there can the log's time go back. So if an entry after
	// TimeSet is later than Until, then no entry behind it is earlier than Until.
	TimeSet log.Seq
}

// ParameterError says which parameter is wrong, why, and what to give.
type ParameterError struct {
	Name   string // of the parameter, which is the flag's as well
	Reason string
	Remedy string
}

// Error implements error.
func (e *ParameterError) Error() string {
	return e.Name + ": " + e.Reason + "; " + e.Remedy
}

// parameter is one name with what reads its values.
type parameter struct {
	name   string
	single bool // it takes one value only
	remedy string
	read   func(f *Filter, value string) error
}

var parameters = []parameter{
	{"kind", false, "give a kind of object, such as nic", func(f *Filter, v string) error {
		return add(&f.Kinds, v, log.ParseKind)
	}},
	{"action", false, "give create, update or delete", func(f *Filter, v string) error {
		return add(&f.Actions, v, log.ParseAction)
	}},
	{"object", false, "give the id of an object: a UUID, a MAC or a tag's name", func(f *Filter, v string) error {
		f.Objects = append(f.Objects, ObjectID(v))
		return nil
	}},
	{"owner", false, "give a UUID of 36 characters", func(f *Filter, v string) error {
		return add(&f.Owners, v, log.ParseUUID)
	}},
	{"vnet", false, fmt.Sprintf("give a number from 0 to %d", log.MaxVNet), func(f *Filter, v string) error {
		return add(&f.VNets, v, parseVNet)
	}},
	{"network", false, "give a UUID of 36 characters", func(f *Filter, v string) error {
		return add(&f.Networks, v, log.ParseUUID)
	}},
	{"cn", false, "give a UUID of 36 characters", func(f *Filter, v string) error {
		return add(&f.CNs, v, log.ParseUUID)
	}},
	{"ip", false, "give an address, as in 10.0.0.1 or fd00::1", func(f *Filter, v string) error {
		return add(&f.Addresses, v, parseAddress)
	}},
	{"actor", false, "give who asked, as entries name them", func(f *Filter, v string) error {
		f.Actors = append(f.Actors, v)
		return nil
	}},
	{"path", false, "give the JSON name of a field, such as gateway", func(f *Filter, v string) error {
		return add(&f.Paths, v, parsePath)
	}},
	{"since", true, "give a time as in 2026-11-21T09:00:00Z", func(f *Filter, v string) (err error) {
		f.Since, err = parseTime(v)
		return err
	}},
	{"until", true, "give a seq, or a time as in 2026-11-21T09:00:00Z", func(f *Filter, v string) (err error) {
		if f.UntilSeq, err = log.ParseSeq(v); err == nil {
			return nil
		}
		f.Until, err = parseTime(v)
		return err
	}},
}

// Names lists the parameters that Parse reads, in a fixed order.
func Names() []string {
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.name
	}
	return names
}

// Parse reads a filter from parameters, such as a URL's query or the flags of a
// command: each name once, alternatives separated by commas. It ignores names that it
// does not know. Errors: *ParameterError.
func Parse(values map[string][]string) (*Filter, error) {
	f := new(Filter)
	for _, p := range parameters {
		given, ok := values[p.name]
		if !ok {
			continue
		}
		refuse := func(format string, args ...any) error {
			return &ParameterError{p.name, fmt.Sprintf(format, args...), p.remedy}
		}
		text := strings.Join(given, ",")
		if p.single {
			if len(given) > 1 {
				return nil, refuse("it is given %d times", len(given))
			}
			if err := p.read(f, text); err != nil {
				return nil, refuse("%v", err)
			}
			continue
		}
		alternatives := strings.Split(text, ",")
		if len(alternatives) > MaxValues {
			return nil, refuse("%d alternatives, over %d", len(alternatives), MaxValues)
		}
		for _, value := range alternatives {
			if value == "" {
				return nil, refuse("a value is empty")
			}
			if err := p.read(f, value); err != nil {
				return nil, refuse("%v", err)
			}
		}
	}
	return f, nil
}

// IsAll reports whether the filter selects every entry.
func (f *Filter) IsAll() bool {
	return f.onlyRange() && f.Since == 0 && f.Until == 0 && f.UntilSeq == 0
}

// onlyRange reports whether only the seq and the time of entries matter.
func (f *Filter) onlyRange() bool {
	return len(f.Kinds)+len(f.Actions)+len(f.Objects)+len(f.Owners)+len(f.VNets)+len(f.Networks)+
		len(f.CNs)+len(f.Addresses)+len(f.Actors)+len(f.Paths) == 0
}

func add[T comparable](list *[]T, text string, parse func(string) (T, error)) error {
	v, err := parse(text)
	if err == nil && !slices.Contains(*list, v) {
		*list = append(*list, v)
	}
	return err
}

func parseVNet(text string) (uint32, error) {
	scope, err := log.ParseScope("vnet:" + text)
	if err != nil {
		return 0, fmt.Errorf("%q: a vnet is a number from 0 to %s", text, strconv.Itoa(log.MaxVNet))
	}
	return scope.VNet, nil
}

func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is no address", text)
	}
	return a, nil
}

func parseTime(text string) (log.Time, error) {
	at, err := log.ParseTime(text)
	if err == nil && at == 0 {
		err = fmt.Errorf("got %q", text)
	}
	return at, err
}

// parsePath accepts every text that can be a field's name, also in a newer program.
func parsePath(text string) (string, error) {
	for _, c := range text {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", fmt.Errorf("%q is no name of a field", text)
		}
	}
	return text, nil
}

// ObjectID returns the id of an object as the log writes it: UUIDs in lower
// case, MACs with colons; other texts as they are.
func ObjectID(text string) string {
	if id, err := log.ParseUUID(text); err == nil {
		return id.String()
	}
	if mac, err := log.ParseMAC(text); err == nil && len(text) == 17 {
		return mac.String()
	}
	return text
}
