package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var grantRules = hooks[*log.Grant]{
	check: func(d *draft, _, g *log.Grant, _ *log.Op) { checkGrant(d, g) },
}

// Bounds of grants.
const (
	maxGrantOwners = 256 // tenants of one reader: each of its answers is compared with all
	// maxGrants bounds those of foreign programs, which are looked through for
	// each request.
	maxGrants = 1024
)

// surfaces are those that a grant may name.
var surfaces = []string{"napi", "cnapi", "vmapi"}

// checkGrant: a reader is limited to owners, a foreign program has surfaces. A
// grant that says nothing would let in more, or no one: it is refused.
func checkGrant(d *draft, g *log.Grant) {
	sort, rest, _ := strings.Cut(g.Subject, ":")
	switch {
	case sort == "reader" && rest != "" && len(rest) <= projections.MaxNameBytes:
		if len(g.OwnerUUIDs) == 0 || len(g.OwnerUUIDs) > maxGrantOwners {
			d.bad("owner_uuids", fmt.Sprintf("there must be 1 to %d, not %d", maxGrantOwners, len(g.OwnerUUIDs)), "name the tenants; a reader without a grant reads everything")
		}
		if len(g.Read)+len(g.Write) > 0 {
			d.bad("read", "a reader has a certificate, and no surfaces", "leave read and write out")
		}
	case sort == "foreign" && isSource(rest):
		if len(g.OwnerUUIDs) > 0 {
			d.bad("owner_uuids", "a program without a certificate is not limited to tenants", "give the tenant's people a certificate: rutter cert issue reader NAME")
		}
		checkSurfaces(d, g)
		if _, there := d.ByName(log.KindGrant, g.Subject); !there && d.State().Count(log.KindGrant) >= maxGrants {
			d.bad("subject", fmt.Sprintf("there are %d grants already", maxGrants), "remove some, or name a network")
		}
	default:
		d.bad("subject", fmt.Sprintf("\"%s\" is nobody whom a grant is for", d.show(g.Subject)), "send reader:NAME, foreign:ADDRESS or foreign:NETWORK/BITS")
	}
	if len(g.Comment) > projections.MaxTextBytes {
		d.bad("comment", "too long", fmt.Sprintf("use at most %d bytes", projections.MaxTextBytes))
	}
}

func checkSurfaces(d *draft, g *log.Grant) {
	if len(g.Read)+len(g.Write) == 0 {
		d.bad("read", "it grants nothing", "name one of "+strings.Join(surfaces, ", "))
	}
	for _, list := range [][]string{g.Read, g.Write} {
		for i, name := range list {
			if !slices.Contains(surfaces, name) || slices.Contains(list[:i], name) {
				d.bad("read", fmt.Sprintf("\"%s\" is no surface, or is there twice", d.show(name)), "name some of "+strings.Join(surfaces, ", "))
			}
		}
	}
}

// isSource accepts an address, or a network without host bits, in the one way of
// writing it: the subject is an id.
func isSource(text string) bool {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Zone() == "" && !a.Is4In6() && a.String() == text
	}
	p, err := netip.ParsePrefix(text)
	return err == nil && p == p.Masked() && !p.Addr().Is4In6() && p.String() == text
}
