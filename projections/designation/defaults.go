package designation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Settings of CNAPI, which package rules checks.
const (
	SettingAllocation  = "cnapi.allocation"   // Defaults in text
	SettingBootDefault = "cnapi.boot_default" // a JSON object: what a server boots that has no record of its own
	SettingPlatforms   = "cnapi.platforms"    // a JSON object: {NAME: {"os": NAME}}, beside those that servers run
)

// MaxDefaultsBytes bounds the text of Defaults.
const MaxDefaultsBytes = 1024

// Ways in which VMs are spread over servers; "" leaves it to the weights.
const (
	SpreadMinRAM   = "min-ram"   // the least free memory first
	SpreadMaxRAM   = "max-ram"   // the most free memory first
	SpreadMinOwner = "min-owner" // the fewest VMs of the owner first
	SpreadRandom   = "random"    // the order that follows from the VM's UUID
)

var spreads = []string{SpreadMinRAM, SpreadMaxRAM, SpreadMinOwner, SpreadRandom}

// Defaults are what an operator chooses of the algorithm (CNAPI's ALLOC_* metadata).
type Defaults struct {
	FilterHeadnode     bool // no VMs on headnodes
	FilterMinResources bool // no server that lacks memory, CPU or disk
	FilterLargeServers bool // the emptiest 15 % are kept for those that fit nowhere else
	FilterCapness      bool // no mixture of VMs with and without cpu_cap
	VMLimit            uint64
	// DisableOverride: the ratios of packages and servers count, and must be equal; else
	// those below count for all.
	DisableOverride    bool
	RatioCPU           uint64 // hundredths: how often a core may be promised
	RatioRAM           uint64 // hundredths
	RatioDisk          uint64 // hundredths
	Spread             string
	CurrentPlatform    int64 // weights, in thousandths
	NumOwnerZones      int64
	UniformRandom      int64
	UnreservedDisk     int64
	UnreservedRAM      int64
	DefaultReservation string // reservation_ratio of a server that has none
}

// Standard are the defaults that CNAPI documents.
func Standard() Defaults {
	return Defaults{
		FilterHeadnode: true, FilterMinResources: true, FilterLargeServers: true, FilterCapness: true, VMLimit: 224,
		RatioCPU: 400, RatioRAM: 100, RatioDisk: 100,
		CurrentPlatform: 1000, UniformRandom: 500, UnreservedDisk: 1000, UnreservedRAM: 2000, DefaultReservation: "0.15",
	}
}

// Ratios are the fixed ratios as CNAPI shows them: a JSON object.
func (d *Defaults) Ratios() string {
	text := func(n uint64) string {
		return strings.TrimSuffix(strings.TrimRight(hundredths(n), "0"), ".")
	}
	return fmt.Sprintf(`{"cpu":%s,"ram":%s,"disk":%s}`, text(d.RatioCPU), text(d.RatioRAM), text(d.RatioDisk))
}

// Most of a number in Defaults.
const (
	mostRatio  = 100_000 // hundredths
	mostWeight = 1_000_000
	mostVMs    = 100_000
)

// part is one NAME=VALUE of the text form.
type part struct {
	flag           *bool
	ratio, number  *uint64
	weight         *int64
	spread, reserv *string
}

func (d *Defaults) parts() map[string]part {
	return map[string]part{
		"filter_headnode": {flag: &d.FilterHeadnode}, "filter_min_resources": {flag: &d.FilterMinResources},
		"filter_large_servers": {flag: &d.FilterLargeServers}, "filter_capness": {flag: &d.FilterCapness},
		"disable_override_overprovisioning": {flag: &d.DisableOverride}, "filter_vm_limit": {number: &d.VMLimit},
		"overprovision_ratio_cpu": {ratio: &d.RatioCPU}, "overprovision_ratio_ram": {ratio: &d.RatioRAM}, "overprovision_ratio_disk": {ratio: &d.RatioDisk},
		"server_spread": {spread: &d.Spread}, "weight_current_platform": {weight: &d.CurrentPlatform},
		"weight_num_owner_zones": {weight: &d.NumOwnerZones}, "weight_uniform_random": {weight: &d.UniformRandom},
		"weight_unreserved_disk": {weight: &d.UnreservedDisk}, "weight_unreserved_ram": {weight: &d.UnreservedRAM},
		"reservation_ratio": {reserv: &d.DefaultReservation},
	}
}

// ParseDefaults reads the text form: NAME=VALUE with commas between, as in
// "filter_headnode=false,overprovision_ratio_cpu=2"; what is not named is Standard.
func ParseDefaults(text string) (Defaults, error) {
	d := Standard()
	if len(text) > MaxDefaultsBytes {
		return d, fmt.Errorf("it has %d bytes, and may have %d", len(text), MaxDefaultsBytes)
	}
	parts := d.parts()
	if text == "" {
		return d, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(one, "=")
		p, known := parts[name]
		if !known {
			names := make([]string, 0, len(parts))
			for name := range parts {
				names = append(names, name)
			}
			slices.Sort(names)
			return d, fmt.Errorf("there is no %q: use NAME=VALUE, where NAME is one of %s", name, strings.Join(names, ", "))
		}
		if err := p.set(name, value); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (p part) set(name, value string) (err error) {
	ok := true
	switch {
	case p.flag != nil:
		*p.flag, ok = value == "true", value == "true" || value == "false"
		return wrong(ok, name, value, "true or false")
	case p.number != nil:
		*p.number, err = strconv.ParseUint(value, 10, 32)
		return wrong(err == nil && *p.number > 0 && *p.number <= mostVMs, name, value, fmt.Sprintf("a number from 1 to %d", mostVMs))
	case p.ratio != nil:
		var n int64
		n, ok = decimal(value, 2)
		*p.ratio = uint64(n)
		return wrong(ok && n > 0 && n <= mostRatio, name, value, "a number above 0 to 1000, with at most 2 digits after the point")
	case p.weight != nil:
		*p.weight, ok = decimal(value, 3)
		return wrong(ok && *p.weight >= -mostWeight && *p.weight <= mostWeight, name, value, "a number from -1000 to 1000, with at most 3 digits after the point")
	case p.spread != nil:
		*p.spread = value
		return wrong(slices.Contains(spreads, value), name, value, "one of "+strings.Join(spreads, ", "))
	}
	*p.reserv = value
	num, den := fraction(value)
	return wrong(value != "" && den != 0 && num <= den, name, value, "a number from 0 to 1")
}

func wrong(ok bool, name, value, want string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s is %.40q: send %s", name, value, want)
}

// decimal reads a number with up to places digits after the point, as a whole number of
// its smallest units.
func decimal(text string, places int) (int64, bool) {
	whole, after, dot := strings.Cut(text, ".")
	if len(after) > places || dot && after == "" || len(whole) > 10 {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+after+strings.Repeat("0", places-len(after)), 10, 64)
	return n, err == nil
}

// fraction reads a part of the whole, as in 0.15; den is 0 if it is none.
func fraction(text string) (num, den uint64) {
	whole, after, _ := strings.Cut(text, ".")
	if len(text) > 10 || whole+after == "" {
		return 0, 0
	}
	num, err := strconv.ParseUint(whole+after, 10, 64)
	if err != nil {
		return 0, 0
	}
	den = 1
	for range after {
		den *= 10
	}
	return num, den
}
