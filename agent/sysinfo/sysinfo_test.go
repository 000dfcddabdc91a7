package sysinfo

import (
	"reflect"
	"strings"
	"testing"
)

// headnode is a sysinfo in SmartOS's form.
const headnode = `{"UUID":"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01","Hostname":"headnode","System Type":"SunOS","Live Image":"20261101T000000Z",
"Boot Time":"1577836800","MiB of Memory":"32755","CPU Total Cores":8,"Setup":"true","Zpool Size in GiB":500,"Boot Parameters":{"headnode":"true"},"Admin NIC Tag":"adm",
"Network Interfaces":{"e1000g0":{"MAC Address":"0:50:56:34:60:4c","ip4addr":"10.99.99.7","Link Status":"up","NIC Names":["adm"]}},
"Virtual Network Interfaces":{"external0":{"MAC Address":"00:50:56:34:60:4d","ip4addr":"10.88.88.2","Link Status":"up","Host Interface":"e1000g1","VLAN":"3"}},
"Link Aggregations":{"aggr0":{"LACP mode":"active","Interfaces":["e1000g0"]}},"Disks":{"c0t0d0":{"Size in GB":100}},"Something New":{"a":[1]}}`

func TestParse(t *testing.T) {
	i, err := Parse([]byte(strings.ReplaceAll(headnode, `"0:50`, `"00:50`)))
	if err != nil {
		t.Fatal(err)
	}
	if i.AdminIP().String() != "10.99.99.7" || !i.Headnode || !i.Setup || i.BootTime != 1577836800 || i.MemoryMiB != 32755 ||
		len(i.NICs) != 2 || i.NICs[1].VLAN != 3 || i.NICs[1].Host != "e1000g1" || !i.NICs[1].Virtual ||
		len(i.Aggregations) != 1 || len(i.MACs(&i.Aggregations[0])) != 1 || i.Disks[0].SizeGB != 100 || i.ZpoolGiB != 500 {
		t.Errorf("parsed %+v", i)
	}
	again, err := Parse(i.JSON())
	if err != nil || !reflect.DeepEqual(again, i) {
		t.Errorf("what JSON writes is read as\n%+v, %v\nwant\n%+v", again, err, i)
	}
}

// Linux's cn-agent may send the kernel's command line as a text.
func TestParseCommandLine(t *testing.T) {
	for text, want := range map[string]bool{`"root=/dev/sda headnode=true"`: true, `"root=/dev/sda"`: false, `{"headnode":true}`: true, `{}`: false, `7`: false} {
		if i, err := Parse([]byte(`{"Boot Parameters":` + text + `}`)); err != nil || i.Headnode != want {
			t.Errorf("%s: %+v, %v", text, i, err)
		}
	}
}

// VMAPI goes through the NIC Names of each interface: it fails where there is no list.
func TestNamesAreLists(t *testing.T) {
	i := Info{NICs: []NIC{{Name: "eth0"}, {Name: "eth1", Tags: []string{"admin"}}}}
	if text := string(i.JSON()); strings.Count(text, `"NIC Names":[`) != 2 {
		t.Error(text)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "invalid", `{"UUID":"x"}`: "UUID", `{"Boot Time":"late"}`: "Boot Time", `{"CN Agent Port":70000}`: "CN Agent Port",
		`{"Network Interfaces":{"a":{"MAC Address":"zz"}}}`:                                      `interface "a"`,
		`{"Virtual Network Interfaces":{"a":{"MAC Address":"00:50:56:34:60:4d","VLAN":"5000"}}}`: "VLAN",
		`{"Network Interfaces":{"a":{"MAC Address":"00:50:56:34:60:4d","ip4addr":"1.2.3"}}}`:     `interface "a"`,
		`{"Disks":{"a":{"Size in GB":"big"}}}`:                                                   "disk",
		`{"Hostname":"` + strings.Repeat("x", 300) + `"}`:                                        "it may have 255",
		`{"x":"` + strings.Repeat("x", MaxBytes) + `"}`:                                          "it may have 32768",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(headnode))
	f.Add([]byte(`{"Setup":true,"Disks":{"a":{"Size in GB":"1"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		i, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(i.JSON()); err == nil && !reflect.DeepEqual(again.NICs, i.NICs) && len(i.NICs) > 0 {
			t.Errorf("NICs changed on the way:\n%+v\n%+v", i.NICs, again.NICs)
		}
	})
}
