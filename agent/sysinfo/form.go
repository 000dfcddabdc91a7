package sysinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// Bounds of an Info. The gatherer cuts what exceeds them, and Parse refuses it.
const (
	MaxBytes        = 32 << 10 // of the JSON form: it is in the server's object, which each of its events carries
	MaxNICs         = 128      // physical and virtual ones each
	MaxAggregations = 32
	MaxDisks        = 256
	maxMembers      = 32  // of an aggregation
	maxTags         = 32  // nic tags on one interface
	maxWord         = 255 // bytes of a name or other short text
)

// ErrInvalid: a sysinfo that cannot be read; the text has the key and the reason.
var ErrInvalid = errors.New("sysinfo: invalid")

// Info is a compute node's description of itself. An unknown field is zero, and is not
// in the JSON form.
type Info struct {
	UUID         log.UUID
	Hostname     string
	SystemType   string // System Type: SunOS, Linux
	LiveImage    string // Live Image: the platform
	BootTime     int64  // Boot Time: seconds since 1970
	MemoryMiB    uint64 // MiB of Memory
	TotalCores   uint64 // CPU Total Cores
	CPUType      string // CPU Type
	Manufacturer string
	Product      string
	Serial       string // Serial Number
	Setup        bool
	Headnode     bool // Boot Parameters, headnode
	Zpool        string
	ZpoolCreated int64  // Zpool Creation: seconds since 1970
	ZpoolGiB     uint64 // Zpool Size in GiB: of the pool, or the file system, that has the VMs
	AgentPort    uint16
	AdminTag     string // Admin NIC Tag: the name of the admin network's tag, if it is not admin
	Agent        string // Rutter Agent: the version of our agent; "" for another agent
	NICs         []NIC  // sorted by name, including the virtual ones
	Aggregations []Aggregation
	Disks        []Disk
}

// NIC is a network interface of the node itself.
type NIC struct {
	Name    string
	MAC     log.MAC
	Up      bool
	IP      netip.Addr // ip4addr: its first IPv4 address; not valid without one
	Tags    []string   // NIC Names: the nic tags that it provides; physical ones and aggregations only
	Virtual bool
	Host    string // Host Interface: the link under a virtual one
	VLAN    uint32 // of a virtual one; 0: untagged
}

// Aggregation is a bond of links.
type Aggregation struct {
	Name     string
	LACPMode string // off, active or passive
	Members  []string
}

// Disk is a block device.
type Disk struct {
	Name   string
	SizeGB uint64
}

// AdminIP is the address at which the node's agent is reachable: that of the NIC with
// the admin tag. It is not valid if there is none.
func (i *Info) AdminIP() netip.Addr {
	tag := i.AdminTag
	if tag == "" {
		tag = "admin"
	}
	for _, nic := range i.NICs {
		if !nic.Virtual && slices.Contains(nic.Tags, tag) && nic.IP.IsValid() {
			return nic.IP
		}
	}
	return netip.Addr{}
}

// MACs are those of an aggregation's members, in their order.
func (i *Info) MACs(a *Aggregation) (macs []log.MAC) {
	for _, member := range a.Members {
		for _, nic := range i.NICs {
			if nic.Name == member && !nic.Virtual {
				macs = append(macs, nic.MAC)
			}
		}
	}
	return macs
}

// wireNIC and the others are the JSON form; its keys are SmartOS's.
type wireNIC struct {
	MAC  string   `json:"MAC Address"`
	IP   string   `json:"ip4addr,omitempty"`
	Link string   `json:"Link Status"`
	Tags []string `json:"NIC Names"` // VMAPI needs a list, also an empty one
	Host string   `json:"Host Interface,omitempty"`
	VLAN any      `json:"VLAN,omitempty"` // a text in SmartOS
}

type wireAggregation struct {
	LACPMode string   `json:"LACP mode"`
	Members  []string `json:"Interfaces"`
}

type wireDisk struct {
	Size any `json:"Size in GB"`
}

// JSON returns the canonical form: keys sorted, no blanks.
func (i *Info) JSON() []byte {
	m := map[string]any{"UUID": i.UUID.String(), "Setup": strconv.FormatBool(i.Setup)}
	text := func(key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	number := func(key string, n uint64, asText bool) {
		switch {
		case n != 0 && asText:
			m[key] = strconv.FormatUint(n, 10)
		case n != 0:
			m[key] = n
		}
	}
	text("Hostname", i.Hostname)
	text("System Type", i.SystemType)
	text("Live Image", i.LiveImage)
	text("CPU Type", i.CPUType)
	text("Manufacturer", i.Manufacturer)
	text("Product", i.Product)
	text("Serial Number", i.Serial)
	text("Zpool", i.Zpool)
	text("Admin NIC Tag", i.AdminTag)
	text("Rutter Agent", i.Agent)
	number("Boot Time", uint64(max(i.BootTime, 0)), true)
	number("MiB of Memory", i.MemoryMiB, true)
	number("CPU Total Cores", i.TotalCores, false)
	number("Zpool Creation", uint64(max(i.ZpoolCreated, 0)), false)
	number("Zpool Size in GiB", i.ZpoolGiB, false)
	number("CN Agent Port", uint64(i.AgentPort), false)
	if i.Headnode {
		m["Boot Parameters"] = map[string]string{"headnode": "true"}
	}
	i.addLinks(m)
	b, err := json.Marshal(m) // maps are written in key order
	if err != nil {
		panic(err) // texts, numbers and maps of them
	}
	return b
}

func (i *Info) addLinks(m map[string]any) {
	physical, virtual := map[string]wireNIC{}, map[string]wireNIC{}
	for _, nic := range i.NICs {
		w := wireNIC{MAC: nic.MAC.String(), Link: "down", Tags: append([]string{}, nic.Tags...)}
		if nic.Up {
			w.Link = "up"
		}
		if nic.IP.IsValid() {
			w.IP = nic.IP.String()
		}
		if nic.Virtual {
			w.Host, w.VLAN = nic.Host, strconv.FormatUint(uint64(nic.VLAN), 10)
			virtual[nic.Name] = w
		} else {
			physical[nic.Name] = w
		}
	}
	aggregations := map[string]wireAggregation{}
	for _, a := range i.Aggregations {
		aggregations[a.Name] = wireAggregation{a.LACPMode, a.Members}
	}
	disks := map[string]wireDisk{}
	for _, d := range i.Disks {
		disks[d.Name] = wireDisk{d.SizeGB}
	}
	m["Network Interfaces"], m["Virtual Network Interfaces"] = physical, virtual
	m["Link Aggregations"], m["Disks"] = aggregations, disks
}

// wire is what Parse reads: a number may be a string, and a string a number.
type wire struct {
	UUID         string                     `json:"UUID"`
	Hostname     string                     `json:"Hostname"`
	SystemType   string                     `json:"System Type"`
	LiveImage    string                     `json:"Live Image"`
	BootTime     any                        `json:"Boot Time"`
	Memory       any                        `json:"MiB of Memory"`
	Cores        any                        `json:"CPU Total Cores"`
	CPUType      string                     `json:"CPU Type"`
	Manufacturer string                     `json:"Manufacturer"`
	Product      string                     `json:"Product"`
	Serial       string                     `json:"Serial Number"`
	Setup        any                        `json:"Setup"`
	Boot         any                        `json:"Boot Parameters"` // a text in Linux's cn-agent
	Zpool        string                     `json:"Zpool"`
	ZpoolCreated any                        `json:"Zpool Creation"`
	ZpoolSize    any                        `json:"Zpool Size in GiB"`
	AgentPort    any                        `json:"CN Agent Port"`
	AdminTag     string                     `json:"Admin NIC Tag"`
	Agent        string                     `json:"Rutter Agent"`
	NICs         map[string]wireNIC         `json:"Network Interfaces"`
	VNICs        map[string]wireNIC         `json:"Virtual Network Interfaces"`
	Aggregations map[string]wireAggregation `json:"Link Aggregations"`
	Disks        map[string]wireDisk        `json:"Disks"`
}

// Parse reads a sysinfo, SmartOS's or ours. Keys without a field in Info are ignored.
// Errors wrap ErrInvalid.
func Parse(b []byte) (*Info, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, it may have %d", ErrInvalid, len(b), MaxBytes)
	}
	var w wire
	var kind *json.UnmarshalTypeError
	if err := json.Unmarshal(b, &w); errors.As(err, &kind) && kind.Field != "" {
		return nil, fmt.Errorf("%w: %s: it is of kind %s", ErrInvalid, kind.Field, kind.Value)
	} else if err != nil {
		return nil, fmt.Errorf("%w: it is no JSON object", ErrInvalid)
	}
	i := &Info{
		Hostname: w.Hostname, SystemType: w.SystemType, LiveImage: w.LiveImage, CPUType: w.CPUType, Manufacturer: w.Manufacturer,
		Product: w.Product, Serial: w.Serial, Zpool: w.Zpool, AdminTag: w.AdminTag, Agent: w.Agent,
		Setup: truth(w.Setup), Headnode: isHeadnode(w.Boot),
	}
	for _, word := range []string{w.Hostname, w.SystemType, w.LiveImage, w.CPUType, w.Manufacturer, w.Product, w.Serial, w.Zpool, w.AdminTag, w.Agent} {
		if len(word) > maxWord {
			return nil, fmt.Errorf("%w: a text of %d bytes, it may have %d: %.40q…", ErrInvalid, len(word), maxWord, word)
		}
	}
	err := i.numbers(&w)
	if w.UUID != "" && err == nil {
		if i.UUID, err = log.ParseUUID(w.UUID); err != nil {
			err = fmt.Errorf("%w: UUID: %w", ErrInvalid, err)
		}
	}
	if err == nil {
		err = i.links(&w)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (i *Info) numbers(w *wire) error {
	var boot, zpool, port uint64
	for _, n := range []struct {
		key  string
		v    any
		most uint64
		to   *uint64
	}{
		{"Boot Time", w.BootTime, 1 << 40, &boot},
		{"MiB of Memory", w.Memory, 1 << 40, &i.MemoryMiB},
		{"CPU Total Cores", w.Cores, 1 << 20, &i.TotalCores},
		{"Zpool Creation", w.ZpoolCreated, 1 << 40, &zpool},
		{"Zpool Size in GiB", w.ZpoolSize, 1 << 30, &i.ZpoolGiB},
		{"CN Agent Port", w.AgentPort, 1<<16 - 1, &port},
	} {
		v, ok := count(n.v)
		if !ok || v > n.most {
			return fmt.Errorf("%w: %s: %v is no number from 0 to %d", ErrInvalid, n.key, n.v, n.most)
		}
		*n.to = v
	}
	i.BootTime, i.ZpoolCreated, i.AgentPort = int64(boot), int64(zpool), uint16(port)
	return nil
}

// isHeadnode looks for headnode=true in boot parameters: an object, or the kernel's command
// line.
func isHeadnode(boot any) bool {
	switch boot := boot.(type) {
	case map[string]any:
		return truth(boot["headnode"])
	case string:
		return slices.Contains(strings.Fields(boot), "headnode=true")
	}
	return false
}

func truth(v any) bool { return v == true || v == "true" }

// count reads a number that may be a string; nothing is 0.
func count(v any) (uint64, bool) {
	switch v := v.(type) {
	case nil:
		return 0, true
	case float64:
		return uint64(v), v >= 0 && v < 1<<53
	case string:
		if v == "" {
			return 0, true
		}
		whole, part, _ := strings.Cut(strings.TrimSpace(v), ".") // a boot time may have a fraction
		n, err := strconv.ParseUint(whole, 10, 64)
		return n, err == nil && strings.Trim(part, "0123456789") == ""
	}
	return 0, false
}

func (i *Info) links(w *wire) error {
	if len(w.NICs) > MaxNICs || len(w.VNICs) > MaxNICs || len(w.Aggregations) > MaxAggregations || len(w.Disks) > MaxDisks {
		return fmt.Errorf("%w: over %d interfaces, %d aggregations or %d disks", ErrInvalid, MaxNICs, MaxAggregations, MaxDisks)
	}
	for virtual, set := range map[bool]map[string]wireNIC{false: w.NICs, true: w.VNICs} {
		for name, from := range set {
			nic, err := from.nic(name, virtual)
			if err != nil {
				return fmt.Errorf("%w: interface %q: %w", ErrInvalid, name, err)
			}
			i.NICs = append(i.NICs, nic)
		}
	}
	slices.SortFunc(i.NICs, compareNICs)
	for _, name := range slices.Sorted(maps.Keys(w.Aggregations)) {
		from := w.Aggregations[name]
		if len(from.Members) > maxMembers || len(name) > maxWord {
			return fmt.Errorf("%w: aggregation %.40q: %d interfaces, it may have %d", ErrInvalid, name, len(from.Members), maxMembers)
		}
		i.Aggregations = append(i.Aggregations, Aggregation{name, from.LACPMode, from.Members})
	}
	for _, name := range slices.Sorted(maps.Keys(w.Disks)) {
		size, ok := count(w.Disks[name].Size)
		if !ok || len(name) > maxWord {
			return fmt.Errorf("%w: disk %.40q: its size is no number", ErrInvalid, name)
		}
		i.Disks = append(i.Disks, Disk{name, size})
	}
	return nil
}

// compareNICs sorts by name; a virtual one of a name comes after a physical one.
func compareNICs(a, b NIC) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 || a.Virtual == b.Virtual {
		return c
	}
	if b.Virtual {
		return -1
	}
	return 1
}

func (w wireNIC) nic(name string, virtual bool) (NIC, error) {
	nic := NIC{Name: name, Up: w.Link == "up", Virtual: virtual, Host: w.Host}
	if len(w.Tags) > 0 {
		nic.Tags = w.Tags
	}
	if name == "" || len(name) > maxWord || len(w.Host) > maxWord || len(w.Tags) > maxTags {
		return nic, fmt.Errorf("a name of 1 to %d bytes and at most %d NIC Names are wanted", maxWord, maxTags)
	}
	var err error
	if nic.MAC, err = log.ParseMAC(w.MAC); err != nil {
		return nic, err
	}
	if w.IP != "" {
		if nic.IP, err = netip.ParseAddr(w.IP); err != nil {
			return nic, err
		}
	}
	vlan, ok := count(w.VLAN)
	if !ok || vlan > 4094 {
		return nic, fmt.Errorf("VLAN %v is no number from 0 to 4094", w.VLAN)
	}
	nic.VLAN = uint32(vlan)
	return nic, nil
}
