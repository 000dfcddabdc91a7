package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Namespace is the XML namespace of our element in a domain's metadata.
const Namespace = "urn:rutter:libvirt:1"

// Bounds of a domain's XML.
const (
	// MaxXML is its length in bytes. libvirt's own domains have some ten KiB.
	MaxXML = 4 << 20
	// MaxInterfaces is how many network interfaces are read.
	MaxInterfaces = 256
)

// ErrNoDomain: the text is no domain's XML, or one that cannot be used.
var ErrNoDomain = errors.New("libvirt: not the XML of a domain")

// Domain is what is read of a domain's XML.
type Domain struct {
	UUID  log.UUID
	Name  string
	Owner log.UUID // as the metadata have it; zero: it is not said there
	RAM   uint64   // MiB, rounded up
	VCPUs uint32
	// NICs are the interfaces whose links we make.
	NICs []NIC
	// Others are the other interfaces, for people: libvirt or another program connects them.
	Others []string
}

// NIC is an interface of a domain that is ours: one of type ethernet whose target libvirt
// does not manage, and which the metadata name, or whose target is the tap that its MAC
// names (vmdoc.TapName).
type NIC struct {
	MAC    log.MAC
	Device string // the tap, not ""
	// Network is the UUID or name that the metadata have; "": that of the NIC with this MAC.
	Network string
	IPs     []netip.Addr // asked for; none: the log chooses
	Primary bool
}

// domainXML is the part of libvirt's form that is read.
type domainXML struct {
	XMLName xml.Name   `xml:"domain"`
	UUID    string     `xml:"uuid"`
	Name    string     `xml:"name"`
	Memory  memoryXML  `xml:"memory"`
	VCPU    vcpuXML    `xml:"vcpu"`
	VMs     []oursXML  `xml:"metadata>vm"`
	Devices devicesXML `xml:"devices"`
}

type memoryXML struct {
	Unit  string `xml:"unit,attr"`
	Value string `xml:",chardata"`
}

type vcpuXML struct {
	Current string `xml:"current,attr"` // those plugged in, if fewer than the value
	Value   string `xml:",chardata"`
}

type oursXML struct {
	XMLName xml.Name
	Owner   string     `xml:"owner,attr"`
	NICs    []namedXML `xml:"nic"`
}

// namedXML is what the metadata say of one interface, which they name by MAC or target.
type namedXML struct {
	MAC     string `xml:"mac,attr"`
	Device  string `xml:"dev,attr"`
	Network string `xml:"network,attr"`
	IP      string `xml:"ip,attr"`
	Primary string `xml:"primary,attr"` // yes or no; "": no
	used    bool
}

type devicesXML struct {
	Interfaces []interfaceXML `xml:"interface"`
}

type interfaceXML struct {
	Type   string `xml:"type,attr"`
	MAC    addrOf `xml:"mac"`
	Target struct {
		Device  string `xml:"dev,attr"`
		Managed string `xml:"managed,attr"`
	} `xml:"target"`
	Source struct {
		Network string `xml:"network,attr"`
		Bridge  string `xml:"bridge,attr"`
		Device  string `xml:"dev,attr"`
	} `xml:"source"`
}

type addrOf struct {
	Address string `xml:"address,attr"`
}

// ParseDomain reads a domain's XML, as hooks and virsh dumpxml give it. Its errors are
// ErrNoDomain, with what to do.
func ParseDomain(r io.Reader) (Domain, error) {
	var x domainXML
	limited := &io.LimitedReader{R: r, N: MaxXML + 1}
	err := xml.NewDecoder(limited).Decode(&x)
	if limited.N <= 0 {
		return Domain{}, fmt.Errorf("%w: it has more than %d bytes", ErrNoDomain, MaxXML)
	}
	if err != nil {
		return Domain{}, fmt.Errorf("%w: %w", ErrNoDomain, err)
	}
	d := Domain{Name: x.Name}
	if d.UUID, err = log.ParseUUID(strings.TrimSpace(x.UUID)); err != nil || d.UUID == (log.UUID{}) {
		return Domain{}, fmt.Errorf("%w: its uuid is %q", ErrNoDomain, x.UUID)
	}
	if len(x.Devices.Interfaces) > MaxInterfaces {
		return Domain{}, fmt.Errorf("%w: %d interfaces, of which at most %d are read", ErrNoDomain, len(x.Devices.Interfaces), MaxInterfaces)
	}
	if err := errors.Join(d.sizes(x), d.interfaces(x)); err != nil {
		return Domain{}, fmt.Errorf("%w: domain %s: %w", ErrNoDomain, d.Name, err)
	}
	return d, nil
}

// sizes reads memory and CPUs. libvirt writes memory in KiB, whatever was defined.
func (d *Domain) sizes(x domainXML) error {
	kib, err := strconv.ParseUint(strings.TrimSpace(x.Memory.Value), 10, 53)
	if err != nil || x.Memory.Unit != "" && x.Memory.Unit != "KiB" {
		return fmt.Errorf("memory of %q %s, where libvirt writes KiB", x.Memory.Value, x.Memory.Unit)
	}
	d.RAM = (kib + 1023) / 1024
	cpus := x.VCPU.Current
	if cpus == "" {
		cpus = x.VCPU.Value
	}
	n, err := strconv.ParseUint(strings.TrimSpace(cpus), 10, 16)
	if err != nil {
		return fmt.Errorf("vcpu is %q, not a number", cpus)
	}
	d.VCPUs = uint32(n)
	return nil
}

// interfaces reads which interfaces are ours.
func (d *Domain) interfaces(x domainXML) error {
	ours, err := metadataOf(x)
	if err != nil {
		return err
	}
	if ours.Owner != "" {
		if d.Owner, err = log.ParseUUID(ours.Owner); err != nil {
			return fmt.Errorf("the owner in its metadata: %w", err)
		}
	}
	for _, i := range x.Devices.Interfaces {
		mac, err := log.ParseMAC(i.MAC.Address)
		if err != nil {
			return fmt.Errorf("an interface's MAC: %w", err)
		}
		named, err := ours.named(mac, i.Target.Device)
		if err != nil {
			return err
		}
		if i.Type != "ethernet" || i.Target.Managed != "no" || i.Target.Device == "" {
			if named != nil {
				return fmt.Errorf("its metadata name the interface %s, of type %s and managed by libvirt: want <interface type='ethernet'> with <target dev='%s' managed='no'/>", mac, i.Type, vmdoc.TapName(mac))
			}
			d.Others = append(d.Others, i.String())
			continue
		}
		if named == nil && i.Target.Device != vmdoc.TapName(mac) {
			d.Others = append(d.Others, i.String())
			continue
		}
		nic, err := nicOf(mac, i.Target.Device, named)
		if err != nil {
			return err
		}
		d.NICs = append(d.NICs, nic)
	}
	for _, n := range ours.NICs {
		if !n.used {
			return fmt.Errorf("its metadata name an interface (mac %q, dev %q) that it does not have", n.MAC, n.Device)
		}
	}
	return d.distinct()
}

// distinct: no two of our NICs are one link, or have one MAC.
func (d *Domain) distinct() error {
	seen := make(map[string]bool)
	for _, n := range d.NICs {
		if seen[n.MAC.String()] || seen[n.Device] {
			return fmt.Errorf("two interfaces have the MAC %s or the target %s", n.MAC, n.Device)
		}
		seen[n.MAC.String()], seen[n.Device] = true, true
	}
	return nil
}

// metadataOf returns our element; it is empty if there is none.
func metadataOf(x domainXML) (ours oursXML, err error) {
	found := false
	for _, m := range x.VMs {
		if m.XMLName.Space != Namespace {
			continue
		}
		if found {
			return ours, fmt.Errorf("two elements vm of %s in its metadata: libvirt keeps one of a namespace", Namespace)
		}
		ours, found = m, true
	}
	for i := range ours.NICs {
		n := &ours.NICs[i]
		if (n.MAC == "") == (n.Device == "") {
			return ours, fmt.Errorf("a nic of its metadata has mac %q and dev %q: want one of the two", n.MAC, n.Device)
		}
	}
	return ours, nil
}

// named returns what the metadata say of an interface, nil if they do not name it.
func (o *oursXML) named(mac log.MAC, device string) (found *namedXML, err error) {
	for i := range o.NICs {
		n := &o.NICs[i]
		match := n.Device != "" && n.Device == device
		if n.MAC != "" {
			m, err := log.ParseMAC(n.MAC)
			if err != nil {
				return nil, fmt.Errorf("a nic of its metadata: %w", err)
			}
			match = m == mac
		}
		if !match {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("its metadata name the interface %s twice", mac)
		}
		found, n.used = n, true
	}
	return found, nil
}

// nicOf is one of our interfaces; n is nil if the metadata do not name it.
func nicOf(mac log.MAC, device string, n *namedXML) (NIC, error) {
	nic := NIC{MAC: mac, Device: device}
	if n == nil {
		return nic, nil
	}
	nic.Network = n.Network
	switch n.Primary {
	case "yes":
		nic.Primary = true
	case "", "no":
	default:
		return nic, fmt.Errorf("primary=%q of the NIC %s: want yes or no", n.Primary, mac)
	}
	for text := range strings.FieldsSeq(n.IP) {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nic, fmt.Errorf("ip of the NIC %s: %w", mac, err)
		}
		nic.IPs = append(nic.IPs, ip)
	}
	return nic, nil
}

// String says where another's interface is connected.
func (i interfaceXML) String() string {
	text := i.MAC.Address + " of type " + i.Type
	for _, at := range []string{i.Source.Network, i.Source.Bridge, i.Source.Device, i.Target.Device} {
		if at != "" {
			return text + " (" + at + ")"
		}
	}
	return text
}
