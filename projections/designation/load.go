package designation

import (
	"encoding/json"
	"math/bits"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

const (
	poolUsable = 94    // percent of a pool, the rest is its metadata
	kvmDisk    = 10240 // MiB, beside the disks of a KVM VM
	kvmMemory  = 1024  // MiB, beside the memory of a KVM VM that a ticket announces
)

// Capacity is what a server has left. A figure below 0 says that more is promised than
// there is.
type Capacity struct {
	CPU  int64 `json:"cpu"`  // percent of a core
	RAM  int64 `json:"ram"`  // MiB
	Disk int64 `json:"disk"` // MiB; 0 also if the size of the pool is not known
}

// ratios are how often a thing may be promised, in hundredths; 0: any number of times.
type ratios struct{ cpu, ram, disk uint64 }

// promised is what the VMs of a server have been promised.
type promised struct {
	cpu, ram, kvmRAM, zones, disks uint64 // percent, MiB
	count                          uint64
	capped, capless                log.UUID // one VM of each sort, or zero
	kvm, bhyve                     log.UUID
	owned                          uint64 // VMs of the owner who asks
}

// one is a VM that counts, of the log or of a ticket.
type one struct {
	uuid, owner     log.UUID
	brand           string
	cpu, ram, quota uint64 // percent, MiB, MiB
	disks           uint64 // MiB
}

// larger takes the larger of each figure: a VM that is being made is in the log with what
// is known of it, and in its ticket with what was asked for.
func (v *one) larger(than one) {
	v.cpu, v.ram, v.quota, v.disks = max(v.cpu, than.cpu), max(v.ram, than.ram), max(v.quota, than.quota), max(v.disks, than.disks)
	if v.brand == "" {
		v.brand = than.brand
	}
}

// counts reports whether a VM takes capacity.
func counts(vm *log.VM) bool { return vm.State != "destroyed" && vm.State != "failed" }

func (m *Memo) oneOf(vm *log.VM) one {
	v := one{
		uuid: vm.UUID, owner: vm.OwnerUUID, brand: vm.Brand,
		cpu: min(vm.CPUCap, most), ram: min(vm.MaxPhysicalMemory, most), quota: min(vm.Quota, most>>10) << 10,
	}
	if isHVM(vm.Brand) {
		v.disks = m.disksOf(vm)
	}
	return v
}

func isHVM(brand string) bool { return brand == "kvm" || brand == "bhyve" }

// ticketed are the VMs that open tickets of scope vm and action provision announce, by
// their server.
type ticketed struct {
	vms map[log.UUID]*waiting
	// mute are the servers with a ticket that does not say how large its VM is.
	mute map[log.UUID]bool
	// at are the servers by the VM.
	at map[log.UUID]placed
	n  int // tickets looked at
}

// waiting are the VMs that tickets of a server announce, each once, as its first ticket
// says, in the order of the tickets.
type waiting struct {
	list []one
	at   map[log.UUID]int // places in list
}

// placed is where a VM is to be made, and whose it is.
type placed struct{ server, owner log.UUID }

// Tickets that announce a VM.
const (
	ticketScope  = "vm"
	ticketAction = "provision"
)

func ticketsOf(view View) ticketed {
	var open []*log.Ticket
	view(func(s *projections.State) {
		for rec := range s.TicketsBy(true) {
			open = append(open, rec.Object.(*log.Ticket))
		}
	})
	t := ticketed{vms: map[log.UUID]*waiting{}, mute: map[log.UUID]bool{}, at: map[log.UUID]placed{}, n: len(open)}
	for _, ticket := range open {
		if ticket.Scope != ticketScope || ticket.Action != ticketAction || ticket.ServerUUID.IsZero() {
			continue
		}
		v, ok := announced(ticket)
		if !ok {
			t.mute[ticket.ServerUUID] = true
			continue
		}
		w := t.vms[ticket.ServerUUID]
		if w == nil {
			w = &waiting{at: map[log.UUID]int{}}
			t.vms[ticket.ServerUUID] = w
		}
		if _, again := w.at[v.uuid]; !again {
			w.at[v.uuid] = len(w.list)
			w.list = append(w.list, v)
		}
		t.at[v.uuid] = placed{ticket.ServerUUID, v.owner}
	}
	return t
}

// announced is the VM of a ticket, by its extra.
func announced(t *log.Ticket) (one, bool) {
	var w struct {
		Owner  string `json:"owner_uuid"`
		Memory any    `json:"max_physical_memory"`
		CPU    any    `json:"cpu_cap"`
		Quota  any    `json:"quota"` // GiB
		Brand  string `json:"brand"`
		Image  any    `json:"image_size"` // MiB
		Disks  []struct {
			Size any `json:"size"`
		} `json:"disks"`
	}
	if t.Extra == "" || decode([]byte(t.Extra), &w) != nil {
		return one{}, false
	}
	v := one{brand: w.Brand, cpu: whole(w.CPU), ram: whole(w.Memory), quota: min(whole(w.Quota), most>>10) << 10}
	if v.ram == 0 {
		return one{}, false
	}
	v.uuid, _ = log.ParseUUID(t.OfID)
	v.owner, _ = log.ParseUUID(w.Owner)
	if w.Brand == "kvm" {
		v.ram += kvmMemory
	}
	if isHVM(w.Brand) {
		for i, d := range w.Disks {
			if size := whole(d.Size); size != 0 || i > 0 {
				v.disks += size
			} else {
				v.disks += whole(w.Image) // the first is as large as the image
			}
		}
	}
	return v, true
}

// eachLoad calls fn with the VMs of each of n servers, in their order, outside the views.
func eachLoad(view View, n int, server func(i int) log.UUID, fn func(on []*log.VM)) {
	var vms []*log.VM
	var ends []int
	for from := 0; from < n; from += slice {
		vms, ends = vms[:0], ends[:0]
		view(func(s *projections.State) {
			for i := from; i < min(from+slice, n); i++ {
				for rec := range s.VMsOn(server(i)) {
					vms = append(vms, rec.Object.(*log.VM))
				}
				ends = append(ends, len(vms))
			}
		})
		begin := 0
		for _, end := range ends {
			fn(vms[begin:end])
			begin = end
		}
	}
}

// load adds up what is promised on a server that has the VMs on.
func (m *Memo) load(on []*log.VM, cn, owner log.UUID, tickets *ticketed) (p promised) {
	var list []one
	var met []bool
	w := tickets.vms[cn]
	if w != nil {
		list, met = w.list, make([]bool, len(w.list))
	}
	for _, vm := range on {
		if !counts(vm) {
			continue
		}
		v := m.oneOf(vm)
		if w != nil {
			if i, announced := w.at[v.uuid]; announced {
				met[i] = true
				if vm.State == "provisioning" {
					v.larger(list[i])
				}
			}
		}
		p.add(&v, owner)
	}
	for i := range list {
		if !met[i] {
			p.add(&list[i], owner)
		}
	}
	return p
}

func (p *promised) add(v *one, owner log.UUID) {
	p.count++
	p.cpu += v.cpu
	p.zones += v.quota
	p.disks += v.disks
	if v.brand == "kvm" {
		p.kvmRAM += v.ram
		p.disks += kvmDisk
		first(&p.kvm, v.uuid)
	} else {
		p.ram += v.ram
	}
	if v.brand == "bhyve" {
		first(&p.bhyve, v.uuid)
	}
	if v.cpu > 0 {
		first(&p.capped, v.uuid)
	} else {
		first(&p.capless, v.uuid)
	}
	if v.owner == owner && !owner.IsZero() {
		p.owned++
	}
}

// first keeps the first UUID that it is given.
func first(to *log.UUID, uuid log.UUID) {
	if to.IsZero() {
		*to = uuid
	}
}

// leftOf is what a server has beside what is promised.
func leftOf(s *log.Server, f *Facts, p *promised, r ratios, d *Defaults) Capacity {
	c := Capacity{
		CPU: int64(f.Cores*100) - int64(over(p.cpu, r.cpu)),
		RAM: int64(Unreserved(s, d)) - int64(over(p.ram, r.ram)+p.kvmRAM),
	}
	if !p.capless.IsZero() {
		c.CPU = min(c.CPU, 0) // it may take all
	}
	if f.PoolMiB > 0 {
		c.Disk = int64(f.PoolMiB*poolUsable/100) - int64(p.disks) - int64(over(p.zones, r.disk))
	}
	return c
}

// over is n at a ratio, rounded up.
func over(n, ratio uint64) uint64 {
	if ratio == 0 {
		ratio = 100
	}
	return (n*100 + ratio - 1) / ratio
}

// Unreserved is what the reservation ratio leaves of a server's memory, in MiB.
func Unreserved(s *log.Server, d *Defaults) uint64 {
	text := s.ReservationRatio
	if text == "" {
		text = d.DefaultReservation
	}
	num, den := fraction(text)
	if den == 0 || num > den {
		return min(s.RAM, most)
	}
	high, low := bits.Mul64(min(s.RAM, most), den-num)
	n, _ := bits.Div64(high, low, den)
	return n
}

// Figures are what servers have left, whatever their status; those are left out whose
// sysinfo does not tell their memory and cores.
func Figures(view View, m *Memo, d *Defaults, servers []*log.Server) map[log.UUID]Capacity {
	tickets := ticketsOf(view)
	return m.figures(view, d, servers, &tickets)
}

func (m *Memo) figures(view View, d *Defaults, servers []*log.Server, tickets *ticketed) map[log.UUID]Capacity {
	left := make(map[log.UUID]Capacity, len(servers))
	at := 0
	eachLoad(view, len(servers), func(i int) log.UUID { return servers[i].UUID }, func(on []*log.VM) {
		server := servers[at]
		at++
		if f := m.Facts(server); notValid(server, f) == "" {
			p := m.load(on, server.UUID, log.UUID{}, tickets)
			left[server.UUID] = leftOf(server, f, &p, d.ratiosOf(server), d)
		}
	})
	return left
}

// ratiosOf are those that a server's capacity is counted with, as CNAPI shows them.
func (d *Defaults) ratiosOf(s *log.Server) ratios {
	if !d.DisableOverride {
		return ratios{d.RatioCPU, d.RatioRAM, d.RatioDisk}
	}
	return readRatios(s.OverprovisionRatio)
}

// readRatios reads overprovision_ratios; nothing is a ratio of memory of 1.
func readRatios(text string) (r ratios) {
	if text == "" {
		return ratios{ram: 100}
	}
	var w struct{ CPU, RAM, Disk json.Number }
	_ = decode([]byte(text), &w)
	for _, one := range []struct {
		from json.Number
		to   *uint64
	}{{w.CPU, &r.cpu}, {w.RAM, &r.ram}, {w.Disk, &r.disk}} {
		*one.to = ratioOf(one.from)
	}
	return r
}

// ratioOf is a ratio in hundredths, rounded down; 0 if there is none.
func ratioOf(n json.Number) uint64 {
	before, after, _ := strings.Cut(n.String(), ".")
	h, ok := decimal(before+"."+(after + "00")[:2], 2)
	if !ok || h <= 0 || h > mostRatio {
		return 0
	}
	return uint64(h)
}

// Capacities are those of the servers that are set up and run, of all or of those that
// are named; and why there is none of others. looked is how much was looked at.
func Capacities(view View, m *Memo, d *Defaults, named []log.UUID) (capacities map[string]Capacity, why map[string]string, looked int) {
	capacities, why = map[string]Capacity{}, map[string]string{}
	tickets := ticketsOf(view)
	var fit []*log.Server
	for _, server := range serversOf(view, named, why) {
		switch f := m.Facts(server); {
		case !server.Setup:
			why[server.UUID.String()] = "Server is not set up"
		case server.Status != "running":
			why[server.UUID.String()] = "Server has status: " + server.Status
		case notValid(server, f) != "":
			why[server.UUID.String()] = notValid(server, f)
		default:
			fit = append(fit, server)
		}
	}
	for uuid, c := range m.figures(view, d, fit, &tickets) {
		capacities[uuid.String()] = c
	}
	m.trimTo(view)
	return capacities, why, len(capacities) + len(why) + tickets.n
}

// serversOf are the servers that are named, or all; those that there are not stand in
// why, if it is not nil.
func serversOf(view View, named []log.UUID, why map[string]string) (list []*log.Server) {
	if named == nil {
		view(func(s *projections.State) {
			list = make([]*log.Server, 0, s.Count(log.KindServer))
			for rec := range s.List(log.KindServer) {
				list = append(list, rec.Object.(*log.Server))
			}
		})
		return list
	}
	seen := make(map[log.UUID]bool, len(named))
	view(func(s *projections.State) {
		for _, uuid := range named {
			if seen[uuid] {
				continue
			}
			seen[uuid] = true
			if rec, ok := s.Get(log.KindServer, uuid.String()); ok {
				list = append(list, rec.Object.(*log.Server))
			} else if why != nil {
				why[uuid.String()] = "Server not found"
			}
		}
	})
	slices.SortFunc(list, func(a, b *log.Server) int { return slices.Compare(a.UUID[:], b.UUID[:]) })
	return list
}

// notValid says why a server has no figures; "" if it has.
func notValid(s *log.Server, f *Facts) string {
	switch {
	case s.RAM == 0:
		return "Server " + s.UUID.String() + " ram is not a number"
	case f.Cores == 0:
		return "Server " + s.UUID.String() + ` "CPU Total Cores" is not a number`
	}
	return ""
}
