package serviceaddr

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"10.99.99.9/24@eth0", "fd00::9/64@net1", "192.0.2.9/32@br0.100"} {
		if a, err := Parse(good); err != nil || a.String() != good {
			t.Errorf("%s: %v, %v", good, a, err)
		}
	}
	for bad, want := range map[string]string{
		"10.99.99.9/24":                  "want ADDRESS/PREFIX@LINK",
		"10.99.99.9/24@":                 "want ADDRESS/PREFIX@LINK",
		"10.99.99.9@eth0":                "want ADDRESS/PREFIX@LINK",
		"10.99.99.9/24@abcdefghijklmnop": "want ADDRESS/PREFIX@LINK",
		"10.99.99.9/24@../x":             "want ADDRESS/PREFIX@LINK",
		"127.0.0.1/8@lo":                 "choose a global",
		"224.0.0.1/8@eth0":               "choose a global",
		"fe80::1/64@eth0":                "choose a global",
		"0.0.0.0/0@eth0":                 "choose a global",
		"::ffff:10.0.0.1/120@eth0":       "10.0.0.1",
		"10.99.99.9/0@eth0":              "no subnet",
		"10.99.99.9/33@eth0":             "want ADDRESS/PREFIX@LINK",
		"fe80::1%eth0/64@eth0":           "want ADDRESS/PREFIX@LINK",
	} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestParseAll(t *testing.T) {
	t.Parallel()
	if _, err := ParseAll([]string{"10.0.0.9/24@a", "10.0.0.9/25@b"}); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Errorf("twice: %v", err)
	}
	var many []string
	for i := range Max + 1 {
		many = append(many, fmt.Sprintf("10.0.0.%d/24@a", i+1))
	}
	if all, err := ParseAll(many[:Max]); err != nil || len(all) != Max {
		t.Errorf("%d: %v", Max, err)
	}
	if _, err := ParseAll(many); err == nil || !strings.Contains(err.Error(), "at most 8") {
		t.Errorf("more than %d: %v", Max, err)
	}
}
