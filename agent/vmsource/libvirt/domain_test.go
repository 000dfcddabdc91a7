package libvirt

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rutter/log"
)

// golden reads what the real libvirt 9.0 printed, or gave its hook.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// goldenName is the name of the domain in the golden files, and goldenUUID its UUID.
const goldenName = `web 0's "é"`

var goldenUUID = must(log.ParseUUID("5f4ab3c8-9e8d-4f6c-8a0e-6a4f4c0a8d11"))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestParseDomain: the XML of each operation has the same interfaces of ours, and those of
// others are left alone.
func TestParseDomain(t *testing.T) {
	for _, name := range []string{"prepare.xml", "started.xml", "stopped.xml", "reconnect.xml", "migrate.xml", "restore.xml"} {
		d, err := ParseDomain(strings.NewReader(string(golden(t, name))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.UUID != goldenUUID || d.Name != goldenName || d.RAM != 128 || d.VCPUs != 1 || d.Owner.String() != "930896af-bf8c-48d4-885c-6573a94b1853" {
			t.Errorf("%s: it is %+v", name, d)
		}
		if len(d.NICs) != 3 || len(d.Others) != 2 {
			t.Fatalf("%s: NICs %+v, others %v, want 3 and 2", name, d.NICs, d.Others)
		}
		mac := d.NICs[0].MAC // libvirt chose it
		want := []NIC{
			{MAC: mac, Device: "web0-front", Network: "front", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.50")}, Primary: true},
			{MAC: log.MAC{0x52, 0x54, 5: 2}, Device: "web0-back", Network: "0e70de36-a40b-4ac0-9429-819f5ff82011"},
			{MAC: log.MAC{0x52, 0x54, 5: 3}, Device: "rt525400000003"},
		}
		if !reflect.DeepEqual(d.NICs, want) || mac == (log.MAC{}) {
			t.Errorf("%s: NICs %+v\nwant %+v", name, d.NICs, want)
		}
		if d.Others[0] != "52:54:00:00:00:04 of type ethernet (otherstap)" || !strings.HasPrefix(d.Others[1], "52:54:00:00:00:05 of type user") {
			t.Errorf("%s: others %q", name, d.Others)
		}
	}
}

// minimal is a domain with metadata and interfaces.
func minimal(metadata, interfaces string) string {
	return `<domain type='qemu'><name>a</name><uuid>5f4ab3c8-9e8d-4f6c-8a0e-6a4f4c0a8d11</uuid><metadata>` + metadata +
		`</metadata><memory unit='KiB'>1025</memory><vcpu>2</vcpu><devices>` + interfaces + `</devices></domain>`
}

// metadata is our element, and tap an interface of ours.
func metadata(nics string) string { return `<r:vm xmlns:r="` + Namespace + `">` + nics + `</r:vm>` }

func tap(mac, device string) string {
	return `<interface type='ethernet'><mac address='` + mac + `'/><target dev='` + device + `' managed='no'/></interface>`
}

// TestDomainsThatCannotBeUsed: what an operator wrote wrong is said, and no NIC is guessed.
func TestDomainsThatCannotBeUsed(t *testing.T) {
	const one, two = "52:54:00:00:00:01", "52:54:00:00:00:02"
	for name, c := range map[string]struct{ xml, want string }{
		"no XML":              {"hello", "EOF"},
		"another document":    {"<network/>", "domain"},
		"no uuid":             {"<domain><name>a</name></domain>", "its uuid"},
		"too long":            {minimal(strings.Repeat(" ", MaxXML), ""), "more than"},
		"too many":            {minimal("", strings.Repeat(tap(one, "a"), MaxInterfaces+1)), "at most 256"},
		"entities":            {`<!DOCTYPE d [<!ENTITY a "b">]>` + minimal("&a;", ""), "entity"},
		"not there":           {minimal(metadata(`<r:nic dev="b" network="n"/>`), tap(one, "a")), "does not have"},
		"by both":             {minimal(metadata(`<r:nic dev="a" mac="`+one+`"/>`), tap(one, "a")), "want one of the two"},
		"by none":             {minimal(metadata(`<r:nic network="n"/>`), tap(one, "a")), "want one of the two"},
		"twice":               {minimal(metadata(`<r:nic dev="a"/><r:nic mac="`+one+`"/>`), tap(one, "a")), "twice"},
		"managed by libvirt":  {minimal(metadata(`<r:nic mac="`+one+`"/>`), `<interface type='ethernet'><mac address='`+one+`'/><target dev='a'/></interface>`), "managed='no'"},
		"a bridge's":          {minimal(metadata(`<r:nic mac="`+one+`"/>`), `<interface type='bridge'><mac address='`+one+`'/><source bridge='b'/></interface>`), "type bridge"},
		"one link":            {minimal(metadata(`<r:nic mac="`+one+`"/><r:nic mac="`+two+`"/>`), tap(one, "a")+tap(two, "a")), "two interfaces"},
		"one MAC":             {minimal(metadata(`<r:nic dev="a"/><r:nic dev="b"/>`), tap(one, "a")+tap(one, "b")), "two interfaces"},
		"no MAC":              {minimal("", tap("5254", "a")), "MAC"},
		"an owner":            {minimal(`<r:vm xmlns:r="`+Namespace+`" owner="me"/>`, ""), "owner"},
		"an address":          {minimal(metadata(`<r:nic dev="a" ip="10.0.0"/>`), tap(one, "a")), "ip of the NIC"},
		"primary":             {minimal(metadata(`<r:nic dev="a" primary="1"/>`), tap(one, "a")), "yes or no"},
		"two elements":        {minimal(metadata("")+metadata(""), ""), "two elements"},
		"memory":              {strings.Replace(minimal("", ""), "KiB", "furlong", 1), "KiB"},
		"more than that much": {strings.Replace(minimal("", ""), "1025", "99999999999999999999", 1), "memory"},
	} {
		if _, err := ParseDomain(strings.NewReader(c.xml)); !errors.Is(err, ErrNoDomain) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an ErrNoDomain about %q", name, err, c.want)
		}
	}
	d, err := ParseDomain(strings.NewReader(minimal(`<x:vm xmlns:x="urn:other"><x:nic/></x:vm>`, tap(one, "a"))))
	if err != nil || len(d.NICs) != 0 || d.RAM != 2 || d.VCPUs != 2 {
		t.Errorf("metadata of another program: %+v, %v", d, err)
	}
}

func FuzzParseDomain(f *testing.F) {
	f.Add(golden(f, "prepare.xml"))
	f.Add([]byte(minimal(metadata(`<r:nic dev="a" network="n"/>`), tap("52:54:00:00:00:01", "a"))))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDomain(strings.NewReader(string(text)))
		if err != nil {
			if !errors.Is(err, ErrNoDomain) {
				t.Errorf("%v is no ErrNoDomain", err)
			}
			return
		}
		seen := make(map[string]bool)
		for _, n := range d.NICs {
			if seen[n.Key()] || n.Device == "" {
				t.Errorf("NICs %+v", d.NICs)
			}
			seen[n.Key()] = true
		}
	})
}
