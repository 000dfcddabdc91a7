package designation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

func keepSetup(_ *run, c *candidate) string {
	if !c.Setup {
		return "Server is not set up"
	}
	return ""
}

func keepRunning(_ *run, c *candidate) string {
	if c.Status != "running" {
		return "Server has status: " + c.Status
	}
	return ""
}

func keepValid(r *run, c *candidate) string {
	c.facts = r.memo.Facts(c.Server)
	return notValid(c.Server, c.facts)
}

func keepUnreserved(_ *run, c *candidate) string {
	if c.Reserved {
		return "Server is reserved"
	}
	return ""
}

func keepReservoir(_ *run, c *candidate) string {
	if c.Reservoir {
		return "Server is in the reservoir"
	}
	return ""
}

func (r *run) keepHeadnodes() {
	if !r.defaults.FilterHeadnode {
		r.skip = "filter_headnode is false"
		return
	}
	r.filter(func(c *candidate) string {
		if c.Headnode {
			return "Server is a headnode"
		}
		return ""
	})
}

// keepVolumes keeps the server that has all VMs whose volumes are wanted.
func (r *run) keepVolumes() {
	if len(r.req.volumes) == 0 {
		r.skip = "Requested VM has no VMs listed in internal_metadata docker:volumesfrom"
		return
	}
	on := make(map[log.UUID]log.UUID, len(r.req.volumes)) // servers by the VM
	for _, uuid := range r.req.volumes {
		if cn, known := r.req.serverOf(r.view, &r.tickets, uuid); known {
			on[uuid] = cn
		}
	}
	r.filter(func(c *candidate) string {
		for _, uuid := range r.req.volumes {
			if cn, known := on[uuid]; !known || cn != c.UUID {
				return "VM needs volumes from " + uuid.String() + ", which was not found on server"
			}
		}
		return ""
	})
}

func (r *run) keepTags() {
	if len(r.req.tags) == 0 {
		r.skip = "No NIC Tag requirements to filter on"
		return
	}
	r.filter(func(c *candidate) string {
		if !c.facts.Interfaces {
			return "Server missing interfaces in sysinfo"
		}
		for _, set := range r.req.tags {
			if slices.ContainsFunc(set, func(tag string) bool { return c.facts.online[tag] }) {
				continue
			}
			for _, tag := range set {
				if link, ok := c.facts.offline[tag]; ok {
					return fmt.Sprintf("NIC %s for tag %q is down", link, tag)
				}
			}
			if c.facts.Agent && r.hasNICOn(c.UUID, set) {
				continue
			}
			return "Server must have one of the NIC Tags: " + strings.Join(set, ", ")
		}
		return ""
	})
}

// hasNICOn reports whether a server has a NIC in the log on one of the NIC tags, such as its
// underlay NIC. Rutter's agent makes that NIC, and its sysinfo names a tag only if a file of
// the node does.
func (r *run) hasNICOn(server log.UUID, tags []string) (has bool) {
	r.view(func(s *projections.State) {
		for row := range projections.NICsOf(server).NICs(s) {
			nic := row.NIC()
			tag := nic.NICTag
			if net := s.Network(nic.NetworkUUID); net != nil {
				tag = net.NICTag
			}
			has = has || slices.Contains(tags, tag) || slices.ContainsFunc(nic.NICTagsProvided, func(tag string) bool { return slices.Contains(tags, tag) })
		}
	})
	return has
}

func keepPlatforms(r *run, c *candidate) string {
	for _, one := range []struct {
		who string
		of  map[string]string
	}{{"Package", r.req.packageMin}, {"Image", r.req.imageMin}} {
		if !reaches(c.facts, one.of) {
			return fmt.Sprintf(`%s requires min platforms %s, but server has {"%s":"%s"}`, one.who, shown(one.of), c.facts.SDCVersion, c.facts.Platform)
		}
	}
	if !within(c.facts, r.req.imageMax) {
		return fmt.Sprintf(`Image requires max platforms %s, but server has {"%s":"%s"}`, shown(r.req.imageMax), c.facts.SDCVersion, c.facts.Platform)
	}
	return ""
}

func shown(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// reaches reports whether a server runs at least a platform: of its own SDC version, or
// any if its version is above all that are named, or between them without being named.
func reaches(f *Facts, least map[string]string) bool {
	if len(least) == 0 {
		return true
	}
	versions := slices.Sorted(maps.Keys(least))
	lowest, highest := versions[0], versions[len(versions)-1]
	at, named := least[f.SDCVersion]
	return f.SDCVersion > highest || named && f.Platform >= at || !named && lowest < f.SDCVersion && f.SDCVersion < highest
}

// within is reaches of the greatest platform.
func within(f *Facts, greatest map[string]string) bool {
	if len(greatest) == 0 {
		return true
	}
	versions := slices.Sorted(maps.Keys(greatest))
	lowest, highest := versions[0], versions[len(versions)-1]
	at, named := greatest[f.SDCVersion]
	return f.SDCVersion < lowest || named && f.Platform <= at || !named && lowest < f.SDCVersion && f.SDCVersion < highest
}

// keepTraits: a server has exactly the traits that are asked for.
func keepTraits(r *run, c *candidate) string {
	has := map[string]any{}
	if c.Traits != "" {
		_ = decode([]byte(c.Traits), &has) // the log took it as an object
	}
	switch {
	case len(r.req.traits) == 0 && len(has) == 0:
		return ""
	case len(r.req.traits) == 0:
		return "Combined vm/pkg/img require no traits but server has " + shown(has)
	}
	fits := len(has) == len(r.req.traits)
	for name, want := range r.req.traits {
		v, ok := has[name]
		fits = fits && ok && traitFits(v, want)
	}
	if !fits {
		return "Combined vm/pkg/img traits require " + shown(r.req.traits) + " but server has " + shown(has)
	}
	return ""
}

// traitFits reports whether a server's trait is one that is asked for: an equal one, or
// lists that have something in common.
func traitFits(has, want any) bool {
	if flag, ok := want.(bool); ok {
		return has == flag
	}
	for _, a := range textsOf(want) {
		if slices.Contains(textsOf(has), a) {
			return true
		}
	}
	return false
}

func textsOf(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if text, ok := one.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

// keepRatios: VMs with different ratios do not share a server.
func (r *run) keepRatios() {
	switch {
	case !r.defaults.DisableOverride:
		r.skip = "all have the fixed values"
		return
	case r.req.ratios == nil:
		r.skip = "Package was not provided"
		return
	}
	r.filter(func(c *candidate) string {
		for _, one := range []struct {
			name      string
			has, want uint64
		}{{"cpu", c.ratios.cpu, r.req.ratios.cpu}, {"ram", c.ratios.ram, r.req.ratios.ram}, {"disk", c.ratios.disk, r.req.ratios.disk}} {
			if one.has != one.want {
				return fmt.Sprintf("Package over-provision ratio of %s of %s does not match server's %s", one.name, hundredths(one.want), hundredths(one.has))
			}
		}
		return ""
	})
}

func hundredths(n uint64) string {
	if n == 0 {
		return "null"
	}
	return fmt.Sprintf("%d.%02d", n/100, n%100)
}

// keepTold leaves out servers of which a ticket does not say how large its VM is.
func keepTold(r *run, c *candidate) string {
	if r.tickets.mute[c.UUID] {
		return "an open ticket to provision a VM does not say how large it is: release it, or wait until it expires"
	}
	return ""
}

// keepCapness: VMs with a cpu_cap and VMs without one do not share a server.
func (r *run) keepCapness() {
	if !r.defaults.FilterCapness {
		r.skip = "Do not filter out cpu_cap disparities"
		return
	}
	r.filter(func(c *candidate) string {
		switch {
		case r.req.cpu > 0 && !c.promised.capless.IsZero():
			return "VM " + c.promised.capless.String() + " has no cpu_cap, while the package does"
		case r.req.cpu == 0 && !c.promised.capped.IsZero():
			return "VM " + c.promised.capped.String() + " has a cpu_cap, while the package does not"
		}
		return ""
	})
}

func keepCount(r *run, c *candidate) string {
	if c.promised.count >= r.defaults.VMLimit {
		return fmt.Sprintf("Server has %d VMs (limit is %d)", c.promised.count, r.defaults.VMLimit)
	}
	return ""
}

func keepHVM(r *run, c *candidate) string {
	brand := r.req.Brand
	switch {
	case !isHVM(brand):
		return ""
	case brand == "bhyve" && !c.facts.Bhyve:
		return `Server does not support "bhyve" VMs`
	case brand == "bhyve" && (r.req.vcpus < 1 || r.req.vcpus > c.facts.MaxVCPUs):
		return fmt.Sprintf("bhyve VM is requesting %d vcpus whereas server supports 1 - %d vcpus", r.req.vcpus, c.facts.MaxVCPUs)
	case brand == "bhyve" && !c.promised.kvm.IsZero():
		return "VM " + c.promised.kvm.String() + " has brand kvm which is incompatible with new VMs using brand bhyve"
	case brand == "kvm" && !c.promised.bhyve.IsZero():
		return "VM " + c.promised.bhyve.String() + " has brand bhyve which is incompatible with new VMs using brand kvm"
	}
	return ""
}

// unfiltered reports whether what is left does not matter, and says so.
func (r *run) unfiltered() bool {
	if !r.defaults.FilterMinResources {
		r.skip = "filter_min_resources is false"
	}
	return !r.defaults.FilterMinResources
}

func (r *run) keepRAM() {
	if r.unfiltered() {
		return
	}
	r.filter(func(c *candidate) string {
		want := r.req.ram
		if r.req.Brand != "kvm" {
			want = over(want, c.ratios.ram)
		}
		if r.defaults.DisableOverride && c.ratios.ram == 0 || c.left.RAM >= int64(want) {
			return ""
		}
		return fmt.Sprintf("VM's calculated %d MiB RAM is more than server's spare %d MiB", want, c.left.RAM)
	})
}

func (r *run) keepCPU() {
	switch {
	case r.unfiltered():
		return
	case r.req.cpu == 0:
		r.skip = "Vm and pkg have no cpu_cap"
		return
	}
	r.filter(func(c *candidate) string {
		want := over(r.req.cpu, c.ratios.cpu)
		if r.defaults.DisableOverride && c.ratios.cpu == 0 || c.left.CPU >= int64(want) {
			return ""
		}
		return fmt.Sprintf("VM's calculated %d CPU is more than server's spare %d", want, c.left.CPU)
	})
}

func (r *run) keepDisk() {
	switch {
	case r.unfiltered():
		return
	case r.req.quota == 0 && r.req.fixed == 0:
		r.skip = "Vm and pkg have no quota"
		return
	}
	r.filter(func(c *candidate) string {
		want := r.req.fixed + over(r.req.quota, c.ratios.disk)
		switch {
		case c.facts.PoolMiB == 0: // its sysinfo does not say
			return ""
		case r.defaults.DisableOverride && c.ratios.disk == 0 || c.left.Disk >= int64(want):
			return ""
		}
		return fmt.Sprintf("VM's calculated %d MiB disk is more than server's spare %d MiB", want, c.left.Disk)
	})
}
