package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// identityWorld is a world with certificates of one compute node.
type identityWorld struct {
	*worldtest.World
	cn     string
	serial int // of the certificate that was made last
}

func newIdentityWorld(t changetest.Tester) *identityWorld {
	return &identityWorld{World: worldtest.New(t, Decide), cn: changetest.UUID(5).String()}
}

// as decides operations of an actor.
func (w *identityWorld) as(actor string, texts ...string) *log.Refusal {
	w.T.Helper()
	ops := make([]log.Op, len(texts))
	for i, text := range texts {
		ops[i] = changetest.Op(w.T, text)
	}
	c := w.Change(ops...)
	c.Actor = actor
	return w.Try(c).Refusal
}

// must is as, and must be accepted.
func (w *identityWorld) must(actor string, texts ...string) {
	w.T.Helper()
	if r := w.as(actor, texts...); r != nil {
		w.T.Fatalf("%s: %s: %v", actor, texts, r)
	}
}

// refuses is as, and must be refused.
func (w *identityWorld) refuses(want, actor string, texts ...string) {
	w.T.Helper()
	if r := w.as(actor, texts...); r == nil || !strings.Contains(r.Error(), want) {
		w.T.Errorf("%s: %s: got %v, want %s", actor, texts, r, want)
	}
}

// makeToken makes one of the node, and redeem uses it.
func (w *identityWorld) makeToken(n int) {
	w.T.Helper()
	w.must("operator:ada", fmt.Sprintf(`create token {"uuid": "#%d#", "hash": "%s", "cn_uuid": "#5#", "expires": "%s"}`, n, keyA, w.Now+6*24*3600e9))
}

func redeem(n int, key string) string {
	return fmt.Sprintf(`update token #%d# {"used_by": "%s"}`, n, key)
}

// certificate is the operation that records the next one.
func (w *identityWorld) certificate(identity, authority, key, more string) string {
	w.serial++
	return fmt.Sprintf(`create certificate {"serial": "%x", "identity": "%s", "authority": "%s", "issuer": "%s", "key": "%s", "not_before": "%s", "not_after": "%s"%s}`,
		w.serial, identity, authority, keyA, key, w.Now-log.CertificateBackdate+10e9, w.Now+7*24*3600e9, more)
}

// bought and renewed are those of a token and of the certificate before.
func (w *identityWorld) bought(n int, key string) []string {
	return []string{redeem(n, key), w.certificate("cn:"+w.cn, "clients", key, fmt.Sprintf(`, "token": "#%d#"`, n))}
}

func (w *identityWorld) renewed(serial int, key string) string {
	return w.certificate("cn:"+w.cn, "clients", key, fmt.Sprintf(`, "replaces": "%x", "replaces_key": "%s"`, serial, keyA))
}

// voters are those that a revocation of a server names.
func voters(subject string) string {
	if !strings.HasPrefix(subject, serverPrefix) {
		return ""
	}
	return `, "voters": ["s3", "s1", "s2"]`
}

func (w *identityWorld) revoke(subject string) {
	w.T.Helper()
	if _, ok := w.State.Get(log.KindRevocation, subject); ok {
		w.must("operator:ada", fmt.Sprintf(`update revocation %s {"reason": "again %d"%s}`, subject, w.Now, voters(subject)))
		return
	}
	w.must("operator:ada", `create revocation {"subject": "`+subject+`"`+voters(subject)+`}`)
}

// covers reports whether a recorded certificate is revoked.
func (w *identityWorld) covers(serial int) bool {
	w.T.Helper()
	r, ok := w.State.Get(log.KindCertificate, fmt.Sprintf("%x", serial))
	if !ok {
		w.T.Fatalf("certificate %x is not recorded", serial)
	}
	d := newDraft(w.State, &log.Change{Time: w.Now}, &byKind)
	return d.revoked(r.Object.(*log.Certificate)) != ""
}

// K1: neither the token that bought it, with the key that used it, nor another token, nor
// a renewal that was under way undoes a revocation; what is granted after it is good.
func TestRevocationIsNotUndone(t *testing.T) {
	w := newIdentityWorld(t)
	node := "cn:" + w.cn
	w.makeToken(1)
	w.makeToken(2)
	w.must(node, w.bought(1, keyA)...)
	first := w.serial
	w.must(node, w.bought(1, keyA)...) // the answer was lost
	w.revoke(node)
	for serial := 1; serial <= w.serial; serial++ {
		if !w.covers(serial) {
			t.Errorf("certificate %x is good after the revocation", serial)
		}
	}
	w.refuses("the token is not good", node, w.bought(1, keyA)...)
	w.refuses("made useless by a revocation", node, w.bought(2, keyB)...)
	w.refuses("the certificate is revoked", node, w.renewed(first, keyB))
	w.refuses("the certificate is revoked", node, w.renewed(0x999, keyB)) // never recorded
	w.refuses("follows from a token", node, w.certificate(node, "clients", keyB, ""))
	w.makeToken(3)
	w.must(node, w.bought(3, keyB)...)
	good := w.serial
	w.must(node, w.renewed(good, keyB))
	if w.covers(good) || w.covers(w.serial) || !w.covers(first) {
		t.Errorf("certificates of after the revocation are revoked: %v, %v; that of before is good: %v", w.covers(good), w.covers(w.serial), !w.covers(first))
	}
	w.revoke(node)
	if !w.covers(good) || !w.covers(w.serial) {
		t.Error("a second revocation does not cover what was granted after the first")
	}
}

// K1: a revocation of one certificate, or of a key, takes the token along that it used.
func TestRevocationOfOneTakesItsToken(t *testing.T) {
	for _, subject := range []string{"serial:1", "key:" + keyA} {
		w := newIdentityWorld(t)
		node := "cn:" + w.cn
		w.makeToken(1)
		w.makeToken(2)
		w.must(node, w.bought(1, keyA)...)
		w.revoke(subject)
		w.refuses("the token is not good", node, w.bought(1, keyA)...)
		w.refuses("the certificate is revoked", node, w.renewed(1, keyB))
		w.must(node, w.bought(2, keyB)...)
	}
}

// K1: what an operator records after a revocation is good; what a server says of itself,
// and a record that is made again, is not.
func TestRecordsAfterRevocation(t *testing.T) {
	w := newIdentityWorld(t)
	w.must("server:s1", w.certificate("server:s1", "peers", keyA, ""))
	w.revoke("server:s1")
	w.refuses("stays until it has ended", "operator:ada", "delete certificate 1")
	w.must("server:s1", w.certificate("server:s1", "peers", keyB, ""))
	w.must("operator:ada", w.certificate("server:s1", "peers", keyB, ""))
	w.must("server:s1", w.certificate("server:s1", "peers", keyB, `, "replaces": "3", "replaces_key": "`+keyB+`"`))
	for serial, want := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		if got := w.covers(serial); got != want {
			t.Errorf("certificate %d: revoked %v, want %v", serial, got, want)
		}
	}
	for range maxGood - 2 {
		w.must("operator:ada", w.certificate("server:s1", "peers", keyB, ""))
	}
	w.refuses("the most that there may be", "operator:ada", w.certificate("server:s1", "peers", keyB, ""))
	w.Now += 8*24*3600e9 + log.RenewalGrace
	w.must("operator:ada", w.certificate("server:s1", "peers", keyB, ""))
}

// K1: a revocation of before the feature version goes on as it was, by time, and what it
// covers does not become good; made again, it is by order. Below the version nothing is
// different.
func TestRevocationsOfBefore(t *testing.T) {
	w := newIdentityWorld(t)
	node := "cn:" + w.cn
	w.State.SetFeature(log.FeatureContained)
	w.makeToken(1)
	w.must(node, redeem(1, keyA))
	w.must(node, w.certificate(node, "clients", keyA, "")) // 1, its clock 10 s ahead
	w.revoke(node)
	if r, _ := w.State.Get(log.KindRevocation, node); r.Object.(*log.Revocation).ByOrder {
		t.Error("a revocation of feature version 2 is by order")
	}
	w.Now += 20e9
	w.must(node, w.certificate(node, "clients", keyB, "")) // 2
	w.State.SetFeature(log.FeatureConfined)
	if w.covers(2) {
		t.Error("the feature version made a good certificate a revoked one")
	}
	w.refuses("the token is not good", node, w.bought(1, keyA)...)
	w.must(node, w.renewed(2, keyB))
	w.revoke(node)
	for _, serial := range []int{1, 2, w.serial} {
		if !w.covers(serial) {
			t.Errorf("certificate %x is good after it was revoked again", serial)
		}
	}
}

// K1: whatever is done in whichever order, with clocks that say anything, exactly those
// certificates are good that follow, step by step, from what an operator gave after the
// last revocation.
func TestRevocationModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newIdentityWorld(t)
		node := "cn:" + w.cn
		tokens := map[int]bool{} // by number; false: made useless
		good := map[int]bool{}   // by serial
		keys := []string{keyA, keyB, strings.Repeat("c3", 32)}
		used := map[int]string{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.Now += log.Time(rapid.IntRange(0, 3600).Draw(t, "seconds")) * 1e9
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				n := len(tokens) + 1
				w.makeToken(n)
				tokens[n] = true
			case 1:
				w.revoke(node)
				for n := range tokens {
					tokens[n] = false
				}
				clear(good)
			case 2:
				if len(tokens) == 0 {
					continue
				}
				n, key := rapid.IntRange(1, len(tokens)).Draw(t, "token"), rapid.SampledFrom(keys).Draw(t, "key")
				ops := w.bought(n, key)
				want := tokens[n] && (used[n] == "" || used[n] == key)
				if got := w.as(node, ops...) == nil; got != want {
					t.Fatalf("token %d: accepted %v, want %v", n, got, want)
				}
				if want {
					used[n], good[w.serial] = key, true
				}
			case 3:
				from := rapid.IntRange(1, max(w.serial, 1)).Draw(t, "from")
				op := w.renewed(from, keyB)
				_, revoked := w.State.Get(log.KindRevocation, node)
				want := good[from] || !revoked
				if got := w.as(node, op) == nil; got != want {
					t.Fatalf("renewal of %x: accepted %v, want %v", from, got, want)
				}
				if want {
					good[w.serial] = true
				}
			case 4:
				w.must("operator:ada", w.certificate(node, "clients", keyB, ""))
				good[w.serial] = true
			}
			for r := range w.State.List(log.KindCertificate) {
				var serial int
				if _, err := fmt.Sscanf(r.Object.ID(), "%x", &serial); err != nil {
					t.Fatal(err)
				}
				if w.covers(serial) == good[serial] {
					t.Fatalf("certificate %x: good %v, want %v", serial, !w.covers(serial), good[serial])
				}
			}
		}
	})
}

// K4: the last operator is not revoked unasked, nor do two operators revoke each other.
func TestLastOperator(t *testing.T) {
	w := newIdentityWorld(t)
	const ada, bob = "operator:ada", "operator:bob"
	w.must(ada, w.certificate(ada, "clients", keyA, ""))
	revoke := func(subject string) string { return `create revocation {"subject": "` + subject + `"}` }
	w.refuses("would leave no operator", ada, revoke(ada))
	w.refuses("would leave no operator", ada, revoke("serial:1"))
	w.refuses("would leave no operator", ada, revoke("key:"+keyA))
	w.must(ada, w.certificate(bob, "clients", keyB, ""))
	w.must(ada, revoke(bob))
	w.refuses("would leave no operator", bob, revoke(ada)) // it was on its way
	c := w.Change(changetest.Op(t, revoke(ada)))
	c.Actor, c.Ops[0].Options = ada, []log.Option{log.OptionLockOut}
	w.State.SetFeature(log.FeatureContained)
	if r := w.Try(c).Refusal; r == nil || !strings.Contains(r.Error(), "does not fit") {
		t.Errorf("an option of feature version 3 below it: %v", r)
	}
	w.State.SetFeature(log.FeatureConfined)
	if r := w.Try(c).Refusal; r != nil {
		t.Errorf("who means it: %v", r)
	}
	unknown := newIdentityWorld(t) // no operator's certificate is recorded: the author is one
	unknown.must(ada, revoke(bob))
	unknown.refuses("would leave no operator", bob, revoke(ada))
}

// K4: an authority is not left out while an identity has a certificate of it only, also
// one that has ended and may be renewed.
func TestLastWayIn(t *testing.T) {
	w := newIdentityWorld(t)
	node := "cn:" + w.cn
	w.must("rutter", `create authority {"name": "clients", "issuing": "`+keyA+`", "certificates": ["MIIB"]}`)
	w.must("operator:ada", w.certificate(node, "clients", keyA, ""))
	w.refuses(node, "operator:ada", `update authority clients {"certificates": ["MIIC"], "issuing": "`+keyB+`"}`) // at once
	w.must("operator:ada", `update authority clients {"certificates": ["MIIC", "MIIB"], "issuing": "`+keyB+`"}`)
	finish := `update authority clients {"certificates": ["MIIC"]}`
	w.refuses("while several stay", "operator:ada", `update authority clients {"certificates": ["MIIC", "MIID"]}`)
	w.refuses(node, "operator:ada", finish)
	w.Now += 8 * 24 * 3600e9
	w.refuses(node, "operator:ada", finish)
	next := strings.Replace(w.renewed(1, keyB), `"issuer": "`+keyA, `"issuer": "`+keyB, 1)
	w.must(node, next)
	w.must("operator:ada", finish)
	if got := show(w.World, log.KindAuthority, "clients"); !strings.Contains(got, "MIIC") || strings.Contains(got, "MIIB") {
		t.Errorf("got %s", got)
	}
	var good []string
	for r := range w.State.List(log.KindRevocation) {
		good = append(good, r.Object.ID())
	}
	if slices.Contains(good, node) {
		t.Error("a record made a revocation")
	}
}

// K4: of two operators who revoke servers at two servers at once, the second is decided on
// what the first has left; a change that does not name the servers is refused.
func TestServersLeftAreAQuorum(t *testing.T) {
	const ada, bob = "operator:ada", "operator:bob"
	revoke := func(subject string) string {
		return `create revocation {"subject": "` + subject + `", "voters": ["s3", "s1", "s2"]}`
	}
	world := func() *identityWorld {
		w := newIdentityWorld(t)
		for i, id := range []string{"s1", "s2", "s3"} {
			w.must("server:"+id, w.certificate("server:"+id, "peers", strings.Repeat(fmt.Sprintf("0%d", i+1), 32), "")) // 1, 3, 5
			w.must("server:"+id, w.certificate("server:"+id, "clients", keyB, ""))                                      // 2, 4, 6
		}
		return w
	}
	w := world()
	w.refuses("names the servers that vote", ada, `create revocation {"subject": "server:s1"}`)
	w.refuses("names the servers that vote", ada, `create revocation {"subject": "serial:1"}`)
	w.refuses("names the servers that vote", ada, `create revocation {"subject": "key:`+keyB+`"}`)
	w.must(ada, revoke("server:s1"))
	w.refuses("would leave 1 of 3 servers", bob, revoke("server:s2"))
	w.refuses("would leave 1 of 3 servers", bob, revoke("serial:3"))
	w.refuses("would leave 1 of 3 servers", bob, revoke("key:"+strings.Repeat("03", 32)))
	w.must(bob, revoke("server:s9")) // it is no member
	if r, _ := w.State.Get(log.KindRevocation, "server:s1"); len(r.Object.(*log.Revocation).Voters) > 0 {
		t.Error("the names are stored")
	}
	c := w.Change(changetest.Op(t, revoke("server:s2")))
	c.Actor, c.Ops[0].Options = ada, []log.Option{log.OptionLockOut}
	if r := w.Try(c).Refusal; r != nil {
		t.Errorf("an operator who means it: %v", r)
	}
	w = world()
	w.refuses("no server that clients accept", ada, revoke("key:"+keyB))
	w.must(ada, revoke("serial:1"))
	w.refuses("would leave 1 of 3 servers", bob, revoke("serial:3"))
	w.must("operator:ada", w.certificate("server:s1", "peers", keyB, "")) // 7
	w.must(bob, revoke("serial:3"))
	if r, _ := w.State.Get(log.KindRevocation, "serial:3"); r.Object.(*log.Revocation).Identity != "server:s2" {
		t.Error("compute nodes do not receive the revocation of a server's certificate")
	}
	w = world()
	w.Now += 8 * 24 * 3600e9 // all have ended: nothing is lost, and s3 alone has a new one
	w.must("server:s3", w.certificate("server:s3", "peers", keyB, ""))
	w.refuses("would leave 0 of 3 servers", ada, revoke("server:s3"))
}

// K4: compute nodes of a single server never accept another certificate of it after a
// revocation of its name, because no other server tells them of it. So that is refused, also
// from an operator who means it; a revocation of its serial is what works.
func TestSingleServerIsRevokedBySerial(t *testing.T) {
	w := newIdentityWorld(t)
	w.must("server:s1", w.certificate("server:s1", "peers", keyA, ""))
	w.must("server:s1", w.certificate("server:s1", "clients", keyB, ""))
	try := func(subject string, options ...log.Option) *log.Refusal {
		c := w.Change(changetest.Op(t, `create revocation {"subject": "`+subject+`", "voters": ["s1"]}`))
		c.Actor, c.Ops[0].Options = "operator:ada", options
		return w.Try(c).Refusal
	}
	for _, options := range [][]log.Option{nil, {log.OptionLockOut}} {
		if r := try("server:s1", options...); r == nil || !strings.Contains(r.Errors[0].Remedy, "rutter cert revoke serial:2") {
			t.Errorf("by name, with %v: %v", options, r)
		}
	}
	if r := try("serial:2"); r == nil {
		t.Error("its only certificate is revoked unasked")
	}
	w.must("operator:ada", w.certificate("server:s1", "clients", keyA, "")) // 3
	if r := try("serial:2"); r != nil {
		t.Errorf("the former certificate: %v", r)
	}
}

// K4: an operator whose certificate is not recorded, and was revoked by its serial, does not
// count as the one that is left.
func TestRevokedAuthorIsNotTheLastOperator(t *testing.T) {
	w := newIdentityWorld(t)
	w.must("operator:ada", `create revocation {"subject": "serial:77", "identity": "operator:bob"}`)
	w.refuses("would leave no operator", "operator:bob", `create revocation {"subject": "operator:ada"}`)
}
