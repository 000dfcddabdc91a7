package designation

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Facts are what a sysinfo says that a placement depends on.
type Facts struct {
	Cores      uint64
	PoolMiB    uint64 // of the zpool; 0: not known
	Platform   string // Live Image
	SDCVersion string
	Bhyve      bool
	MaxVCPUs   uint64
	Agent      bool // it is of a node with Rutter's agent
	// Interfaces: the sysinfo has Network Interfaces.
	Interfaces bool
	online     map[string]bool
	offline    map[string]string // nic tags whose link is not up, with the link's name
}

// wireNIC is a network interface of a sysinfo.
type wireNIC struct {
	Link    string `json:"Link Status"`
	Tags    any    `json:"NIC Names"`
	Overlay any    `json:"Overlay Nic Tags"`
}

// nicTags reads nic tags: a list, or as Linux's cn-agent has them a text with commas.
func nicTags(v any) []string {
	text, ok := v.(string)
	if !ok {
		return textsOf(v)
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// FactsOf reads a sysinfo as the log has it: "" or JSON. What cannot be read is left
// out.
func FactsOf(sysinfo string) *Facts {
	var w struct {
		Cores    any                `json:"CPU Total Cores"` // threads, in spite of its name
		Online   any                `json:"CPU Online Count"`
		Count    any                `json:"CPU Count"`
		Pool     any                `json:"Zpool Size in GiB"`
		Platform string             `json:"Live Image"`
		Version  string             `json:"SDC Version"`
		Bhyve    any                `json:"Bhyve Capable"`
		MaxVCPUs any                `json:"Bhyve Max Vcpus"`
		NICs     map[string]wireNIC `json:"Network Interfaces"`
		VNICs    map[string]wireNIC `json:"Virtual Network Interfaces"`
		Agent    string             `json:"Rutter Agent"`
	}
	_ = decode([]byte(sysinfo), &w) // what was read until an error counts
	f := &Facts{
		Cores: either(whole(w.Cores), either(whole(w.Online), whole(w.Count))), PoolMiB: whole(w.Pool) << 10, Platform: w.Platform, SDCVersion: w.Version, Bhyve: w.Bhyve == true || w.Bhyve == "true",
		MaxVCPUs: whole(w.MaxVCPUs), Agent: w.Agent != "", Interfaces: w.NICs != nil, online: map[string]bool{}, offline: map[string]string{},
	}
	if f.SDCVersion == "" {
		f.SDCVersion = "6.5" // which did not say so
	}
	if f.MaxVCPUs == 0 {
		f.MaxVCPUs = 16
	}
	f.MaxVCPUs = min(f.MaxVCPUs, f.Cores)
	for _, set := range []map[string]wireNIC{w.NICs, w.VNICs} {
		for name, nic := range set {
			for _, tag := range append(nicTags(nic.Tags), nicTags(nic.Overlay)...) {
				if nic.Link == "up" {
					f.online[tag] = true
				} else if was := f.offline[tag]; was == "" || name < was {
					f.offline[tag] = name
				}
			}
		}
	}
	return f
}

// most bounds every figure that a client or a node sends, so that sums of them are exact.
const most = 1 << 40

// whole is a number of a sysinfo, which may be a text; 0 if it is none.
func whole(v any) uint64 {
	text, ok := v.(string)
	if number, is := v.(json.Number); is {
		text, ok = number.String(), true
	}
	before, _, _ := strings.Cut(strings.TrimSpace(text), ".")
	if n, err := strconv.ParseUint(before, 10, 64); ok && err == nil && n < most {
		return n
	}
	return 0
}

// decode reads JSON with its numbers as they are written: deciding where a VM goes counts
// in whole numbers.
func decode(b []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(to)
}

// disksOf is the size of the disks of a VM, in MiB, by VMAPI's field disks.
func disksOf(properties string) (mib uint64) {
	if !strings.Contains(properties, `"disks"`) {
		return 0
	}
	var w struct {
		Disks []struct {
			Size any `json:"size"`
		} `json:"disks"`
	}
	_ = decode([]byte(properties), &w)
	for _, d := range w.Disks {
		mib += whole(d.Size)
	}
	return mib
}

// Memo keeps what was read of JSON, so that it is read once for each change of it. The
// zero value is ready. It has one user at a time.
type Memo struct {
	facts map[log.UUID]memoFacts
	disks map[log.UUID]memoDisks
}

type memoFacts struct {
	sysinfo string
	facts   *Facts
}

type memoDisks struct {
	properties string
	mib        uint64
}

// Facts are FactsOf the server's sysinfo.
func (m *Memo) Facts(s *log.Server) *Facts {
	was, ok := m.facts[s.UUID]
	if ok && was.sysinfo == s.Sysinfo {
		return was.facts
	}
	if m.facts == nil {
		m.facts = make(map[log.UUID]memoFacts)
	}
	f := FactsOf(s.Sysinfo)
	m.facts[s.UUID] = memoFacts{s.Sysinfo, f}
	return f
}

func (m *Memo) disksOf(vm *log.VM) uint64 {
	if vm.Properties == "" {
		return 0
	}
	was, ok := m.disks[vm.UUID]
	if ok && was.properties == vm.Properties {
		return was.mib
	}
	if m.disks == nil {
		m.disks = make(map[log.UUID]memoDisks)
	}
	n := disksOf(vm.Properties)
	m.disks[vm.UUID] = memoDisks{vm.Properties, n}
	return n
}

// trimTo is trim to what there is in a view.
func (m *Memo) trimTo(view View) {
	servers, vms := 0, 0
	view(func(s *projections.State) { servers, vms = s.Count(log.KindServer), s.Count(log.KindVM) })
	m.trim(servers, vms)
}

// trim forgets what is of objects that are gone, when it has become more than twice as
// many as there are.
func (m *Memo) trim(servers, vms int) {
	const few = 1024
	if len(m.facts) > 2*servers+few {
		m.facts = nil
	}
	if len(m.disks) > 2*vms+few {
		m.disks = nil
	}
}
