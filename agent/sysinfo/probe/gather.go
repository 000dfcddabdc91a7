package probe

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rutter/agent/sysinfo"
	"rutter/log"
)

// Source has the locations to read; the zero value is the system itself.
type Source struct {
	CN    log.UUID
	Agent string // version of this agent
	Port  uint16 // of its HTTP service on the admin network; 0: none
	Setup bool
	// Root is the prefix of /proc, /sys and /etc: "" except in tests.
	Root string
	// Store is a folder of the file system that has the disks of VMs; "": the node does not
	// tell how large it is, and disk does not count where VMs are placed.
	Store string
	// Tags is the file of nic tags; it may be missing.
	Tags string
	// Links lists the links with their addresses; nil: netlink.
	Links func() ([]Link, error)
}

// Link is one link of the node with its first IPv4 address.
type Link struct {
	Name string
	MAC  net.HardwareAddr
	Up   bool
	IP   netip.Addr
}

// ours are the names of links that agents make (architecture section 9). They are not
// part of the node itself, and come and go with VMs.
var ours = []string{"sdcvxl", "vx", "fabric", "veth", "docker", "lo"}

func isOurs(name string) bool {
	return slices.ContainsFunc(ours, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && (rest == "" || rest[0] >= '0' && rest[0] <= '9' || prefix == "veth")
	})
}

// Gather returns the node's current description. What cannot be read is left out.
func (s Source) Gather() (*sysinfo.Info, error) {
	i := &sysinfo.Info{
		UUID: s.CN, SystemType: "Linux", Agent: cmp.Or(s.Agent, "unknown"), AgentPort: s.Port, Setup: s.Setup,
		TotalCores: uint64(runtime.NumCPU()),
	}
	i.Hostname = s.word("/proc/sys/kernel/hostname")
	i.LiveImage = s.word("/proc/sys/kernel/osrelease")
	i.Manufacturer = s.word("/sys/class/dmi/id/sys_vendor")
	i.Product = s.word("/sys/class/dmi/id/product_name")
	i.Serial = s.word("/sys/class/dmi/id/product_serial")
	i.MemoryMiB = field(s.read("/proc/meminfo"), "MemTotal:") / 1024
	i.BootTime = int64(field(s.read("/proc/stat"), "btime"))
	for line := range strings.Lines(s.read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			i.CPUType = clean(value)
			break
		}
	}
	i.Disks, i.ZpoolGiB = s.disks(), s.storeGiB()
	list := s.Links
	if list == nil {
		list = systemLinks
	}
	links, err := list()
	if err != nil {
		return nil, err
	}
	s.addLinks(i, links)
	return i, nil
}

func (s Source) read(path string) string {
	b, err := os.ReadFile(filepath.Join(s.Root+"/", path))
	if err != nil {
		return ""
	}
	return string(b[:min(len(b), maxFile)])
}

const (
	maxFile = 1 << 20 // bytes read of one file
	maxWord = 255     // bytes kept of one text
)

func (s Source) word(path string) string { return clean(s.read(path)) }

func clean(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "")
	return text[:min(len(text), maxWord)]
}

// field returns the number after a name at the beginning of a line.
func field(text, name string) uint64 {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == name {
			n, _ := strconv.ParseUint(words[1], 10, 64) // none is 0
			return n
		}
	}
	return 0
}

// disks returns the block devices that have hardware.
func (s Source) disks() (list []sysinfo.Disk) {
	entries, _ := os.ReadDir(filepath.Join(s.Root+"/", "sys/block"))
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(s.Root+"/", "sys/block", e.Name(), "device")); err != nil || len(list) == sysinfo.MaxDisks {
			continue
		}
		sectors, _ := strconv.ParseUint(s.word("/sys/block/"+e.Name()+"/size"), 10, 64)
		list = append(list, sysinfo.Disk{Name: e.Name(), SizeGB: sectors * 512 / 1_000_000_000}) // sectors of 512: Documentation/ABI/stable/sysfs-block
	}
	return list
}

// storeGiB is the size of the file system of Store; 0 if it cannot be read. Without what is
// reserved for root, as a pool's size is.
func (s Source) storeGiB() uint64 {
	var fs unix.Statfs_t
	if s.Store == "" || unix.Statfs(s.Store, &fs) != nil || fs.Frsize <= 0 {
		return 0
	}
	return (fs.Blocks - min(fs.Bfree-min(fs.Bavail, fs.Bfree), fs.Blocks)) * uint64(fs.Frsize) >> 30
}

// systemLinks reads the links by netlink.
func systemLinks() ([]Link, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var links []Link
	for _, one := range all {
		if isOurs(one.Name) {
			continue // there may be thousands, and the addresses of each need a request
		}
		l := Link{Name: one.Name, MAC: one.HardwareAddr, Up: one.Flags&net.FlagRunning != 0}
		addrs, _ := one.Addrs() // a link that was removed meanwhile has none
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !l.IP.IsValid() {
				l.IP = p.Addr()
			}
		}
		links = append(links, l)
	}
	return links, nil
}

// lacpModes are the LACP modes of bonds (Documentation/networking/bonding.rst).
var lacpModes = map[string]string{"802.3ad": "active"}

func (s Source) addLinks(i *sysinfo.Info, links []Link) {
	tags := s.tags()
	counts := map[bool]int{}
	for _, l := range links {
		if len(l.MAC) != 6 || isOurs(l.Name) {
			continue
		}
		nic := sysinfo.NIC{Name: l.Name, MAC: log.MAC(l.MAC), Up: l.Up, IP: l.IP}
		folder := "/sys/class/net/" + l.Name
		// In a bond all links have one address (Documentation/networking/bonding.rst).
		if own, err := log.ParseMAC(s.word(folder + "/bonding_slave/perm_hwaddr")); err == nil {
			nic.MAC = own
		}
		bond := strings.Fields(s.read(folder + "/bonding/mode"))
		if vlan := s.read("/proc/net/vlan/" + l.Name); vlan != "" {
			nic.Virtual = true
			nic.VLAN, nic.Host = vlanOf(vlan)
		} else if len(bond) == 0 && !s.there(folder+"/device") && len(tags.of(&nic)) == 0 {
			nic.Virtual = true // made by the kernel, without hardware, as a bridge or macvlan
			nic.Host = s.lower(folder)
		}
		if nic.Virtual && s.there(folder+"/tun_flags") {
			continue // a tap is a NIC of a VM, and no NIC of the node
		}
		if !nic.Virtual {
			nic.Tags = tags.of(&nic)
		}
		if len(bond) > 0 && len(i.Aggregations) < sysinfo.MaxAggregations {
			members := strings.Fields(s.read(folder + "/bonding/slaves"))
			slices.Sort(members)
			i.Aggregations = append(i.Aggregations, sysinfo.Aggregation{Name: l.Name, LACPMode: cmp.Or(lacpModes[bond[0]], "off"), Members: members})
		}
		if counts[nic.Virtual]++; counts[nic.Virtual] <= sysinfo.MaxNICs {
			i.NICs = append(i.NICs, nic)
		}
	}
	slices.SortFunc(i.NICs, func(a, b sysinfo.NIC) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(i.Aggregations, func(a, b sysinfo.Aggregation) int { return strings.Compare(a.Name, b.Name) })
	i.AdminTag = tags.admin
}

func (s Source) there(path string) bool {
	return unix.Access(filepath.Join(s.Root+"/", path), unix.F_OK) == nil
}

// lower is the one link under another; "" if there is none, or more than one
// (Documentation/ABI/testing/sysfs-class-net: lower_NAME).
func (s Source) lower(folder string) (host string) {
	entries, _ := os.ReadDir(filepath.Join(s.Root+"/", folder))
	for _, e := range entries {
		name, is := strings.CutPrefix(e.Name(), "lower_")
		switch {
		case is && host != "":
			return ""
		case is:
			host = name
		}
	}
	return host
}

// vlanOf reads /proc/net/vlan/NAME: "NAME  VID: 4  REORDER_HDR: …", "Device: eth0".
func vlanOf(text string) (vlan uint32, host string) {
	words := strings.Fields(text)
	for i, word := range words[:max(len(words)-1, 0)] {
		switch word {
		case "VID:":
			n, _ := strconv.ParseUint(words[i+1], 10, 12)
			vlan = uint32(n)
		case "Device:":
			host = words[i+1]
		}
	}
	return vlan, host
}

// tagFile is the content of the file of nic tags: tags by MAC or name of a link.
type tagFile struct {
	by    map[string][]string
	admin string
}

func (s Source) tags() tagFile {
	t := tagFile{by: map[string][]string{}}
	if s.Tags == "" {
		return t
	}
	b, err := os.ReadFile(s.Tags)
	if err != nil {
		return t
	}
	for line := range bytes.Lines(b[:min(len(b), maxFile)]) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value = strings.Trim(strings.ToLower(strings.TrimSpace(value)), `"'`)
		if name == "admin_tag" {
			t.admin = value
		}
		if tag, ok := strings.CutSuffix(name, "_nic"); ok && tag != "" && len(t.by[value]) < maxTags {
			t.by[value] = append(t.by[value], tag)
		}
	}
	return t
}

// maxTags bounds the tags of one link (maxTagsOnOne of package rules).
const maxTags = 32

func (t tagFile) of(nic *sysinfo.NIC) []string {
	tags := slices.Concat(t.by[nic.Name], t.by[nic.MAC.String()])
	slices.Sort(tags)
	return slices.Compact(tags)
}
