// Package zonename checks the names of zones: places of servers and compute nodes, such as
// racks, rooms or sites, between which the network is slower than inside.
package zonename

import "fmt"

// Max bounds the name of a zone, in bytes: that of a label of DNS (RFC 1035).
const Max = 63

// Check refuses what is no name of a zone. A zone need not be known to anything else.
func Check(name string) error {
	if len(name) < 1 || len(name) > Max {
		return fmt.Errorf("a zone's name of %d characters: want one to %d of a-z, 0-9 and -", len(name), Max)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("zone %q: want one to %d of a-z, 0-9 and -, as in east-2", name, Max)
		}
	}
	return nil
}
