package log

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func mustUUID(text string) UUID {
	u, err := ParseUUID(text)
	if err != nil {
		panic(err)
	}
	return u
}

func mustMAC(text string) MAC {
	m, err := ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return m
}

// exampleEvents has one event for each kind and action that matters.
func exampleEvents() map[string]*Event {
	cn := mustUUID("564d69b1-a178-3fbe-b36f-3f2b7fd7ed31")
	owner := mustUUID("930896af-bf8c-48d4-885c-6573a94b1853")
	network := mustUUID("0e70de36-a40b-4ac0-9429-819f5ff822bd")
	vm := mustUUID("5595d88c-6e4d-4bda-b58e-97dd02e32bec")
	change := mustUUID("0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6")
	at := Time(1795251600123456789)
	event := func(o Object, action Action, scopes ...Scope) *Event {
		return &Event{
			Kind: o.Kind(), Action: action, ID: o.ID(), Revision: 1, Time: at, Actor: "napi",
			ChangeID: change, Scopes: scopes, Object: o,
		}
	}
	update := event(&Network{
		UUID: network, Name: "my-fabric", Family: "ipv4", VLANID: 4, NICTag: "sdc_overlay",
		Subnet: netip.MustParsePrefix("10.21.12.0/24"), ProvisionStart: netip.MustParseAddr("10.21.12.5"),
		ProvisionEnd: netip.MustParseAddr("10.21.12.250"), Gateway: netip.MustParseAddr("10.21.12.254"),
		Resolvers: []netip.Addr{netip.MustParseAddr("8.8.8.8")}, Routes: Routes{{"10.99.0.0/16", "10.21.12.2"}},
		MTU: 1400, OwnerUUIDs: []UUID{owner}, Fabric: true, VNetID: 4385813,
	}, Update, VNetScope(4385813))
	update.Revision = 9
	update.More = 1
	update.Changed = []FieldChange{
		{"gateway", "10.21.12.1"},
		{"resolvers", []string{"8.8.4.4"}},
		{"routes", map[string]string{"10.98.0.0/16": "10.21.12.3", "10.97.0.0/16": "10.21.12.3"}},
		{"mtu", uint64(1500)},
		{"description", nil},
		{"internet_nat", true},
	}
	return map[string]*Event{
		"migration": event(&Migration{
			UUID: change, InstanceID: vm, SourceVMM: owner, SourceState: "in_progress", SourceGen: 2, SourceUpdated: at,
			TargetVMM: network, TargetState: "pending", TargetGen: 1, TargetUpdated: at,
		}, Create),
		"token": event(&Token{
			UUID: change, Hash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", CN: cn, Created: at, Expires: at + 600e9,
			UsedBy: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", Used: at + 5e9,
		}, Create),
		"revocation": event(&Revocation{
			Subject: "server:s1", Identity: "server:s1", IssuedBefore: at, Until: at + 600e9, Reason: "stolen", Created: at,
		}, Create, AllScope()),
		"grant": event(&Grant{
			Subject: "reader:audit", OwnerUUIDs: []UUID{owner, vm}, Read: []string{"napi"}, Write: []string{"vmapi"}, Comment: "until the move",
		}, Create),
		"authority": event(&Authority{
			Name: "clients", Generation: 2, Issuing: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", Certificates: []string{"MIIB", "MIIC"},
		}, Create, AllScope()),
		"certificate": event(&Certificate{
			Serial: "5f0a12", Identity: "cn:564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", Authority: "clients",
			Issuer:    "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
			Key:       "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			NotBefore: at, NotAfter: at + 600e9,
		}, Create),
		"setting": event(&Setting{Name: "napi.network_immutable", Value: "true"}, Create),
		"ip": event(&IP{
			NetworkUUID: network, IP: netip.MustParseAddr("10.21.12.9"), Reserved: true,
			BelongsToType: "other", BelongsToUUID: vm, OwnerUUID: owner,
		}, Create),
		"network_pool": event(&NetworkPool{
			UUID: change, Name: "pool", Description: "of two", Family: "ipv4", Networks: []UUID{network, vm}, OwnerUUIDs: []UUID{owner},
		}, Create),
		"fabric_vlan": event(&FabricVLAN{
			OwnerUUID: owner, VLANID: 4, VNetID: 4385813, Name: "web", Description: "front",
		}, Create),
		"aggregation": event(&Aggregation{
			BelongsToUUID: cn, Name: "aggr0", LACPMode: "active",
			MACs: []MAC{mustMAC("90:b8:d0:12:34:56"), mustMAC("90:b8:d0:12:34:57")}, NICTagsProvided: []string{"admin"},
		}, Create, CNScope(cn)),
		"router": event(&Router{
			UUID: change, Name: "r", Description: "joins", OwnerUUID: owner, Family: "ipv4", Networks: []UUID{network, vm},
			Addresses: []netip.Addr{netip.MustParseAddr("10.21.12.10"), netip.MustParseAddr("10.22.12.10")},
			VNets:     []uint32{10, 4385813}, VMUUID: vm, CNUUID: cn,
		}, Create, CNScope(cn), VNetScope(10), VNetScope(4385813)),
		"nic_tag": event(&NICTag{Name: "external", UUID: network, MTU: 1500}, Create, AllScope()),
		"network": update,
		"nic": event(&NIC{
			MAC: mustMAC("90:b8:d0:12:34:56"), BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: owner, Primary: true,
			State: "running", Created: at, Modified: at, NetworkUUID: network, IP: netip.MustParseAddr("10.21.12.7"),
			CNUUID: cn, Model: "virtio", NICTagsProvided: []string{"admin", "external"}, AllowIPSpoofing: true,
		}, Create, CNScope(cn), VNetScope(4385813)),
		"server": event(&Server{
			UUID: cn, Hostname: "cn1", Datacenter: "dc1", Status: "running", Setup: true, RAM: 24576, Created: at, LastBoot: at,
			CurrentPlatform: "20261101T000000Z",
		}, Create, CNScope(cn)),
		"vm": event(&VM{
			UUID: vm, Alias: "web0", OwnerUUID: owner, Brand: "joyent", State: "running", ServerUUID: cn, Zonename: vm.String(),
			MaxPhysicalMemory: 512, Quota: 10, CPUCap: 100, ImageUUID: network, CreateTimestamp: at, LastModified: at,
		}, Delete, CNScope(cn)),
		"server_2": event(&Server{
			UUID: cn, Hostname: "cn0", Status: "running", Setup: true, RAM: 65536, Created: at, LastBoot: at,
			Sysinfo: `{"Hostname":"cn0"}`, Agents: []string{`{"name":"net-agent"}`}, BootParams: `{"rabbitmq":"x"}`,
			BootPlatform: "20261101T000000Z", BootModules: `[]`, KernelFlags: `{"-k":true}`, DefaultConsole: "serial",
			OverprovisionRatio: `{"ram":1}`, ReservationRatio: "0.15", Traits: `{"ssd":true}`, Reserved: true, Reservoir: true,
			SettingUp: true, TransitionalStatus: "rebooting", AdminIP: netip.MustParseAddr("10.99.99.7"), AgentPort: 5309,
		}, Create, CNScope(cn)),
		"server_3": event(&Server{
			UUID: cn, Hostname: "cn0", Status: "running", Setup: true, VXLANPort: 4790, UnderlayMTU: 1500,
			UnderlayPaths: []string{PathTo{netip.MustParseAddr("192.0.2.7"), 1400}.String()},
		}, Create, CNScope(cn)),
		"nic_2": event(&NIC{
			MAC: mustMAC("90:b8:d0:12:34:58"), BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: owner, State: "running",
			NetworkUUID: network, IP: netip.MustParseAddr("192.0.2.8"), CNUUID: cn, Underlay: true, VXLANPort: 4790, UnderlayMTU: 1500,
		}, Create, CNScope(cn), NetworkScope(network)),
		"task": event(&Task{
			UUID: change, ReqID: "r1", Task: "machine_start", Params: `{"uuid":"x"}`, ServerUUID: cn, Status: TaskFailure, Via: ViaHTTP,
			Created: at, Deadline: at + 3600e9, Timeout: 3600, ClaimedBy: 7, Claimant: "s1", Started: at, Finished: at,
			Failure: "interrupted", Result: `{}`, History: []string{`{"name":"error"}`},
		}, Create, CNScope(cn)),
		"ticket": event(&Ticket{
			UUID: change, ServerUUID: cn, Scope: "vm", OfID: vm.String(), Action: "start", ReqID: "r1", Extra: `{}`,
			Status: TicketActive, Place: 3, Created: at, Updated: at, Expires: at + 3600e9,
		}, Create),
		"network_2": event(&Network{
			UUID: network, Name: "fabric-a", Family: "ipv4", VLANID: 4, NICTag: "overlay", Subnet: netip.MustParsePrefix("10.21.12.0/24"),
			ProvisionStart: netip.MustParseAddr("10.21.12.5"), ProvisionEnd: netip.MustParseAddr("10.21.12.250"), MTU: 1400, OwnerUUIDs: []UUID{owner},
			Resolvers: Addresses{netip.MustParseAddr("8.8.8.8")}, Fabric: true, VNetID: 4385813, SelfProvision: SelfProvisionJoined,
		}, Create, VNetScope(4385813)),
		"network_3": event(&Network{
			UUID: network, Name: "fabric-b", Family: "ipv4", NICTag: "overlay", Subnet: netip.MustParsePrefix("10.21.13.0/24"),
			ProvisionStart: netip.MustParseAddr("10.21.13.5"), ProvisionEnd: netip.MustParseAddr("10.21.13.250"), MTU: 1400, OwnerUUIDs: []UUID{owner},
			Resolvers: Addresses{netip.MustParseAddr("8.8.8.8")}, Fabric: true, VNetID: 4385813, DHCP: true, Broadcast: true,
		}, Create, VNetScope(4385813)),
		"vm_2": event(&VM{
			UUID: vm, Alias: "web1", OwnerUUID: owner, Brand: "bhyve", State: "running", ZoneState: "running", ServerUUID: cn, Zonename: vm.String(),
			Properties: `{"billing_id":"d9e3e0f0-0000-4000-8000-000000000001","tags":{"role":"web"}}`,
		}, Create, CNScope(cn)),
		"nic_tag_2": event(&NICTag{Name: "manta_rack_100", UUID: change, MTU: 1500, ReportedBy: cn}, Create, AllScope()),
		"nic_3": event(&NIC{
			MAC: mustMAC("90:b8:d0:12:34:59"), BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: owner, State: "running",
			NetworkUUID: network, IP: netip.MustParseAddr("10.21.12.8"), CNUUID: cn,
			AllowedIPs: Addresses{netip.MustParseAddr("10.21.12.100"), netip.MustParseAddr("10.21.12.101")},
		}, Create, CNScope(cn), VNetScope(4385813)),
		"revocation_2": event(&Revocation{
			Subject: "server:s1", Identity: "server:s1", IssuedBefore: at, Created: at, ByOrder: true, Good: []string{"5f0a12", "77"}, Voters: []string{"s1", "s2"},
		}, Create, AllScope()),
		"certificate_2": event(&Certificate{
			Serial: "5f0a12", Identity: "cn:564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", Authority: "clients",
			Issuer:    "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
			Key:       "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			NotBefore: at, NotAfter: at + 600e9, Replaces: "77", ReplacesKey: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", Token: change,
		}, Create),
		"token_2": event(&Token{
			UUID: change, Hash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", CN: cn, Created: at, Expires: at + 600e9, Voided: at + 5e9,
		}, Create),
		"vmm_2": event(&VMM{UUID: change, InstanceID: vm, SledID: cn, State: "creating", Gen: 1, TimeUpdated: at, Placed: true}, Create, CNScope(cn)),
		"vmm":   event(&VMM{UUID: change, InstanceID: vm, SledID: cn, State: "failed", Gen: 7, TimeUpdated: at, Reason: "no_such_instance"}, Create, CNScope(cn), NetworkScope(network)),
	}
}

// goldenEvents are the examples, and a creation of each kind that has none.
func goldenEvents(t *testing.T) map[string]*Event {
	all := exampleEvents()
	for _, kind := range Kinds() {
		if all[kind.String()] == nil {
			o := filled(t, kind)
			all[kind.String()] = &Event{Kind: kind, Action: Create, ID: o.ID(), Revision: 1, Time: 1795251600123456789, Actor: "napi", Object: o}
		}
		if o := NewObject(kind); LabelsOf(o) != nil { // and one with labels, by a change that reverts
			*LabelsOf(o) = []string{"owner/team=net", "set=web"}
			all[kind.String()+"_labels"] = &Event{
				Kind: kind, Action: Create, ID: o.ID(), Revision: 1, Time: 1795251600123456789, Actor: "operator/ada", Object: o,
				Reverts: Reverts{{1042, 1042}, {1050, 1060}},
			}
		}
	}
	return all
}

// filled returns an object with something in each field, by its place: the same
// each time.
func filled(t *testing.T, kind Kind) Object {
	o := NewObject(kind)
	for i, s := range slots(o) {
		n := uint64(i) + 1
		uuid := UUID{6: 0x70, 8: 0x80, 15: byte(n)}
		var v Value
		switch s.p.(type) {
		case *bool:
			v = true
		case *uint32, *uint64, *Time:
			v = n
		case *string:
			v = s.name
		case *UUID:
			v = uuid.String()
		case *MAC:
			v = MAC{0x90, 0xb8, 0xd0, 0, 0, byte(n)}.String()
		case *netip.Addr:
			v = "10.0.0.1"
		case *netip.Prefix:
			v = "10.0.0.0/24"
		case *[]string:
			v = []string{s.name}
		case *[]UUID:
			v = []string{uuid.String()}
		case *[]MAC:
			v = []string{"90:b8:d0:00:00:01"}
		case *[]uint32:
			v = []string{"7"}
		case *[]netip.Addr:
			v = []string{"10.0.0.1"}
		case *Routes:
			v = map[string]string{"10.1.0.0/16": "10.0.0.1"}
		}
		if err := s.setValue(v); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func exampleChange() *Change {
	return &Change{
		ID: mustUUID("0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6"), Actor: "operator/ada", Time: 1795251600123456789, Seed: 42,
		Ops: []Op{
			{Action: Create, Kind: KindNICTag, Set: []string{"name"}, Object: &NICTag{Name: "external"}},
			{Action: Update, Kind: KindNIC, ID: "90:b8:d0:12:34:56", IfMatch: 3, Set: []string{"ip"}, Object: &NIC{IP: netip.MustParseAddr("fd00::1")}},
			{Action: Delete, Kind: KindVM, ID: "5595d88c-6e4d-4bda-b58e-97dd02e32bec"},
		},
	}
}

// drawObject fills every field of an object of kind with anything that it can hold.
func drawObject(t *rapid.T, kind Kind) Object {
	o := NewObject(kind)
	visit(o, drawer{t})
	return o
}

// drawer is the visitor that fills fields at random.
type drawer struct{ t *rapid.T }

func draw[T any](d drawer, name string, p *T, g *rapid.Generator[T]) { *p = g.Draw(d.t, name) }

func (d drawer) str(name string, p *string)   { draw(d, name, p, rapid.String()) }
func (d drawer) boolean(name string, p *bool) { draw(d, name, p, rapid.Bool()) }
func (d drawer) u32(name string, p *uint32)   { draw(d, name, p, rapid.Uint32()) }
func (d drawer) u64(name string, p *uint64)   { draw(d, name, p, rapid.Uint64()) }
func (d drawer) time(name string, p *Time) {
	draw(d, name, p, rapid.Map(rapid.Int64(), func(n int64) Time { return Time(n) }))
}
func (d drawer) uuid(name string, p *UUID)       { draw(d, name, p, uuids()) }
func (d drawer) addr(name string, p *netip.Addr) { draw(d, name, p, ips()) }
func (d drawer) strs(name string, p *[]string)   { *p = drawList(d, name, rapid.String()) }
func (d drawer) uuids(name string, p *[]UUID)    { *p = drawList(d, name, nonZero(uuids(), UUID.IsZero)) }

func (d drawer) addrs(name string, p *[]netip.Addr) {
	*p = drawList(d, name, nonZero(ips(), func(a netip.Addr) bool { return !a.IsValid() }))
}

func (d drawer) macs(name string, p *[]MAC) {
	*p = drawList(d, name, nonZero(macs(), MAC.IsZero))
}
func (d drawer) u32s(name string, p *[]uint32) { *p = drawList(d, name, rapid.Uint32()) }

func (d drawer) mac(name string, p *MAC) {
	for i := range p {
		p[i] = rapid.Byte().Draw(d.t, name)
	}
}

func (d drawer) prefix(name string, p *netip.Prefix) {
	if a := ips().Draw(d.t, name); a.IsValid() {
		*p = netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(d.t, name))
	}
}

func (d drawer) routes(name string, p *Routes) {
	*p = routesOf(rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(d.t, name))
}

func drawList[T any](d drawer, name string, g *rapid.Generator[T]) []T {
	list := rapid.SliceOfN(g, 0, 3).Draw(d.t, name)
	if len(list) == 0 {
		return nil
	}
	return list
}

func nonZero[T any](g *rapid.Generator[T], zero func(T) bool) *rapid.Generator[T] {
	return g.Filter(func(v T) bool { return !zero(v) })
}

func uuids() *rapid.Generator[UUID] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) UUID { return UUID(b) })
}

func macs() *rapid.Generator[MAC] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 6, 6), func(b []byte) MAC { return MAC(b) })
}

func ips() *rapid.Generator[netip.Addr] {
	return rapid.OneOf(
		rapid.Just(netip.Addr{}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 4, 4), func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)) }),
	)
}

func drawReverts(t *rapid.T) Reverts {
	return RevertsOf(rapid.SliceOfN(rapid.Map(rapid.Uint64Range(1, 1<<40), func(n uint64) Seq { return Seq(n) }), 0, 3).Draw(t, "reverts"))
}

func drawEvent(t *rapid.T) *Event {
	kind := rapid.SampledFrom(Kinds()).Draw(t, "kind")
	o := drawObject(t, kind)
	e := &Event{
		Kind: kind, Action: Action(rapid.IntRange(1, 3).Draw(t, "action")), ID: o.ID(),
		Revision: Revision(rapid.Uint64().Draw(t, "revision")), Time: Time(rapid.Int64().Draw(t, "at")),
		Actor: rapid.String().Draw(t, "actor"), ChangeID: uuids().Draw(t, "change"),
		More: rapid.Uint32().Draw(t, "more"), Object: o,
		Changed: Diff(o, drawObject(t, kind)),
		Reverts: drawReverts(t),
	}
	if rapid.Bool().Draw(t, "scoped") {
		e.Scopes = []Scope{AllScope(), CNScope(uuids().Draw(t, "cn")), VNetScope(rapid.Uint32().Draw(t, "vnet")), NetworkScope(uuids().Draw(t, "network"))}
	}
	return e
}
