package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var certificateRules = hooks[*log.Certificate]{
	check: func(d *draft, before, c *log.Certificate, _ *log.Op) {
		if before == nil {
			checkCertificate(d, c)
		}
	},
	remove: keepRecord,
	follow: noteGood,
}

func checkCertificate(d *draft, c *log.Certificate) {
	if !isHex(c.Serial, maxSerial) || c.Serial[0] == '0' {
		d.bad("serial", "is not a number in hexadecimal", fmt.Sprintf("send at most %d digits, none of them a leading zero", maxSerial))
	}
	if c.Identity == "" || len(c.Identity) > projections.MaxNameBytes+16 {
		d.bad("identity", "is not one", "send cn:UUID, server:NAME, operator:NAME or reader:NAME")
	}
	if c.Authority != "clients" && c.Authority != "peers" {
		d.bad("authority", fmt.Sprintf("there is no authority \"%s\"", d.show(c.Authority)), "send clients or peers")
	}
	if !isKeyID(c.Issuer) || !isKeyID(c.Key) {
		d.bad("key", "key and issuer are SHA-256s of public keys, in hexadecimal", "let rutter cert do it")
	}
	if c.NotAfter <= c.NotBefore {
		d.bad("not_after", "it ends before it begins", "send what the certificate says")
	}
	if d.confined() && !d.refused() {
		checkFollows(d, c)
	}
}

// maxVoters bounds the servers that a revocation names.
const maxVoters = 64

const serverPrefix = "server:"

// checkServersLeft refuses a revocation after which the servers that have good
// certificates are no quorum, or after which no client is let in by a server. The change
// names the servers that vote, because the state does not know them. So a change that is
// made without the API's own path for revocations is refused, and of two at once the
// second is decided on what the first has left.
func checkServersLeft(d *draft, r *log.Revocation, op *log.Op) {
	voters := r.Voters
	if r.Voters = nil; !aboutServer(d, r) {
		return
	}
	if len(voters) == 0 || len(voters) > maxVoters || slices.ContainsFunc(voters, func(id string) bool { return len(id) > projections.MaxNameBytes }) {
		d.bad("voters", fmt.Sprintf("a revocation that is about a server names the servers that vote, at most %d", maxVoters), "revoke it with rutter cert revoke, or POST /pki/revocations; if that was done, repeat it")
		return
	}
	voters = slices.Compact(slices.Sorted(slices.Values(voters)))
	ways := waysOf(d, voters, "clients", r)
	switch lost, left := serversLeft(d, voters, ways, r); {
	case len(lost) > 0 && left == 0 && strings.HasPrefix(r.Subject, serverPrefix):
		refuseByName(d, r, ways)
		return
	case len(lost) > 0 && left == 0 && !asks(op, log.OptionLockOut):
		d.refuse(log.CodeInUse, "the revocation would leave no server that clients accept", log.FieldError{
			Field: "subject", Code: log.ElementInvalid, Message: "no other certificate of a server for its clients is recorded and good",
			Remedy: "issue one and record it first (rutter cert issue server " + lost[0] + " -s URL); yes (--yes) does it all the same",
		})
		return
	}
	lost, left := serversLeft(d, voters, waysOf(d, voters, "peers", r), r)
	if quorum := len(voters)/2 + 1; len(lost) > 0 && left < quorum && !asks(op, log.OptionLockOut) {
		d.refuse(log.CodeInUse, fmt.Sprintf("the revocation would leave %d of %d servers with a good certificate, and a quorum is %d: the log could not be written", left, len(voters), quorum), log.FieldError{
			Field: "subject", Code: log.ElementInvalid, Message: "servers that vote would lose their last certificate: " + d.show(firstOf(lost)),
			Remedy: "remove the server first (rutter cluster remove " + d.show(lost[0]) + "), or add others, so that the servers that are left are a quorum; yes (--yes) does it all the same",
		})
	}
}

// refuseByName refuses what no operator can mean: compute nodes learn from a server that
// they trust which certificates are good after a revocation of a name. If none is left,
// they accept no certificate of that name any more.
func refuseByName(d *draft, r *log.Revocation, ways map[string]*way) {
	remedy := "revoke its certificates one by one, by serial or key (rutter cert show -o json), after another was issued and recorded"
	if w := ways[r.Subject]; w != nil && len(w.serials) > 0 {
		slices.Sort(w.serials)
		remedy = "issue another certificate and record it (rutter cert issue server, rutter cert record), then revoke this one: rutter cert revoke serial:" + firstOf(w.serials)
	}
	d.refuse(log.CodeInUse, "the revocation by name would leave no server that compute nodes accept, also not with another certificate", log.FieldError{
		Field: "subject", Code: log.ElementInvalid, Message: "no other server has a good certificate that could tell them which are good afterwards", Remedy: remedy,
	})
}

// aboutServer reports whether a revocation covers certificates of a server.
func aboutServer(d *draft, r *log.Revocation) bool {
	if strings.HasPrefix(r.Subject, serverPrefix) || strings.HasPrefix(r.Identity, serverPrefix) {
		return true
	}
	for o := range d.Objects(projections.All(log.KindCertificate)) {
		if c := o.(*log.Certificate); strings.HasPrefix(c.Identity, serverPrefix) && hits(r, c) {
			return true
		}
	}
	return false
}

// way is what is recorded of a server's certificates of one set of authorities.
type way struct {
	before, after bool     // one is good now, and after the revocation
	serials       []string // those that are good now
}

// waysOf returns the ways of servers of which a certificate is recorded, by identity. A
// certificate is good until it ends, unless it is revoked or no authority that signed it
// is trusted.
func waysOf(d *draft, voters []string, authority string, r *log.Revocation) map[string]*way {
	ways := make(map[string]*way)
	only := "" // the one authority that is trusted
	if rec, ok := d.ByName(log.KindAuthority, authority); ok && len(rec.Object.(*log.Authority).Certificates) == 1 {
		only = rec.Object.(*log.Authority).Issuing
	}
	for o := range d.Objects(projections.All(log.KindCertificate)) {
		c := o.(*log.Certificate)
		id, isServer := strings.CutPrefix(c.Identity, serverPrefix)
		if c.Authority != authority || !isServer || !slices.Contains(voters, id) {
			continue
		}
		w := ways[c.Identity]
		if w == nil {
			w = new(way)
			ways[c.Identity] = w
		}
		if d.time < c.NotAfter && (only == "" || c.Issuer == only) && d.revoked(c) == "" {
			w.before, w.after, w.serials = true, w.after || !hits(r, c), append(w.serials, c.Serial)
		}
	}
	return ways
}

// serversLeft returns the servers that lose their last good certificate by a revocation,
// and how many have one after it. A server of which none is recorded has one unless its
// name is revoked.
func serversLeft(d *draft, voters []string, ways map[string]*way, r *log.Revocation) (lost []string, left int) {
	for _, id := range voters {
		w := ways[serverPrefix+id]
		if w == nil {
			before := d.revocation(serverPrefix+id) == nil
			w = &way{before: before, after: before && r.Subject != serverPrefix+id}
		}
		if w.after {
			left++
		} else if w.before {
			lost = append(lost, id)
		}
	}
	return lost, left
}
