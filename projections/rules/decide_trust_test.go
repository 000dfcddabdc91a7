package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// Hashes of this test.
var (
	keyA = strings.Repeat("a1", 32)
	keyB = strings.Repeat("b2", 32)
)

// A token is redeemed by one key, once, as long as it lives.
func TestTokens(t *testing.T) {
	w := worldtest.New(t, Decide)
	later := func(d log.Time) string { return (w.Now + d).String() }
	token := func(n int, lives log.Time) string {
		return fmt.Sprintf(`create token {"uuid": "#%d#", "hash": "%s", "cn_uuid": "#5#", "expires": "%s"}`, n, keyA, later(lives))
	}
	w.Must(token(1, 600e9))
	w.Must(token(2, 2e9))
	for _, c := range []struct{ op, want string }{
		{token(3, -5e9), "expires: a token lives for some time"},
		{token(3, 8*24*3600e9), "expires: a token lives for some time"},
		{`create token {"hash": "12", "cn_uuid": "#5#", "expires": "` + later(600e9) + `"}`, "hash: is not a SHA-256"},
		{`create token {"hash": "` + keyA + `", "expires": "` + later(600e9) + `"}`, "cn_uuid: Missing parameter"},
		{`update token #1# {"used_by": "me"}`, "used_by: is not the SHA-256"},
		{`update token #1# {"cn_uuid": "#6#"}`, "cn_uuid: Token updates for this field are not supported"},
	} {
		refused(w, c.op, c.want)
	}
	redeem := func(n int, key string) string { return fmt.Sprintf(`update token #%d# {"used_by": "%s"}`, n, key) }
	if r := w.Must(redeem(1, keyA)); r.Events != 1 {
		t.Errorf("redeemed with %d events, want 1", r.Events)
	}
	if r := w.Must(redeem(1, keyA)); r.Events != 0 {
		t.Errorf("redeemed again by the same key with %d events, want none", r.Events)
	}
	refused(w, redeem(1, keyB), "the token was used already")
	w.Now += 3e9
	refused(w, redeem(2, keyA), "the token has expired")
	if scopes := w.State.ScopesOf(log.KindToken, changetest.UUID(1).String()); len(scopes) > 0 {
		t.Errorf("a token is of scopes %v, want none", scopes)
	}
}

// A revocation is never taken back while a certificate may be valid.
func TestRevocations(t *testing.T) {
	w := worldtest.New(t, Decide)
	cn := changetest.UUID(5).String()
	w.Must(`create revocation {"subject": "cn:` + cn + `", "reason": "stolen"}`)
	w.Must(`create revocation {"subject": "serial:5f0a", "identity": "server:s1", "voters": ["s1", "s2", "s3"], "until": "` + (w.Now + 5e9).String() + `"}`)
	w.Must(`create revocation {"subject": "server:s2", "voters": ["s1", "s2", "s3"]}`)
	if got := show(w, log.KindRevocation, "cn:"+cn); !strings.Contains(got, "identity=cn:"+cn) || !strings.Contains(got, "issued_before=") {
		t.Errorf("got %s, want an identity and a time", got)
	}
	for _, c := range []struct{ op, want string }{
		{`create revocation {"subject": "cn:x"}`, "names no certificates"},
		{`create revocation {"subject": "serial:0F"}`, "names no certificates"},
		{`create revocation {"subject": "serial:"}`, "names no certificates"},
		{`create revocation {"subject": "key:12"}`, "names no certificates"},
		{`create revocation {"subject": "everybody"}`, "names no certificates"},
		{`create revocation {"subject": "server:s3", "issued_before": "2100-01-01T00:00:00Z"}`, "it lies ahead"},
		{`create revocation {"subject": "server:s3", "until": "1970-01-01T00:00:00.5Z"}`, "it has passed"},
		{`update revocation server:s2 {"issued_before": "1970-01-01T00:00:00.5Z"}`, "cannot be taken back"},
		{`update revocation serial:5f0a {"until": "1970-01-01T00:00:02Z"}`, "cannot be shortened"},
		{`delete revocation server:s2`, "stays until"},
		{`delete revocation serial:5f0a`, "stays until"},
	} {
		refused(w, c.op, c.want)
	}
	var all []string
	for r := range w.State.InScope(log.AllScope()) {
		all = append(all, r.Object.ID())
	}
	if want := []string{"serial:5f0a", "server:s2"}; !slices.Equal(all, want) {
		t.Errorf("every CN hears of %q, want those of servers, %q", all, want)
	}
	w.Now += 10e9
	refused(w, `delete revocation serial:5f0a`, "stays until") // the certificate may be renewed yet
	w.Now += log.RenewalGrace
	w.Must(`delete revocation serial:5f0a`)
}

func TestAuthorities(t *testing.T) {
	w := worldtest.New(t, Decide)
	w.Must(`create authority {"name": "clients", "issuing": "` + keyA + `", "certificates": ["MIIB"]}`)
	w.Must(`update authority clients {"certificates": ["MIIB", "MIIC"]}`)
	w.Must(`update authority clients {"issuing": "` + keyB + `"}`)
	if got := show(w, log.KindAuthority, "clients"); !strings.Contains(got, "generation=3") {
		t.Errorf("got %s, want generation 3", got)
	}
	for _, c := range []struct{ op, want string }{
		{`create authority {"name": "guests", "issuing": "` + keyA + `", "certificates": ["MIIB"]}`, `there is no authority "guests"`},
		{`create authority {"name": "peers", "issuing": "me", "certificates": ["MIIB"]}`, "issuing: is not the SHA-256"},
		{`update authority clients {"certificates": []}`, "there must be 1 to 4"},
		{`update authority clients {"certificates": [""]}`, "one has 0 bytes"},
		{`update authority clients {"generation": 9}`, "not supported"},
		{`delete authority clients`, "an authority stays"},
	} {
		refused(w, c.op, c.want)
	}
	w.Must(`create certificate {"serial": "5f", "identity": "cn:x", "authority": "clients", "issuer": "` + keyA + `", "key": "` + keyB + `", "not_before": "1970-01-01T00:00:01Z", "not_after": "1970-01-02T00:00:00Z"}`)
	refused(w, `create certificate {"serial": "0", "identity": "cn:x", "authority": "clients", "issuer": "`+keyA+`", "key": "`+keyB+`", "not_after": "1970-01-02T00:00:00Z"}`, "serial: is not a number")
	refused(w, `update certificate 5f {"identity": "cn:y"}`, "not supported")
	refused(w, `delete certificate 5f`, "the record of a certificate stays")
	w.Now += 2 * 24 * 3600e9
	w.Must(`delete certificate 5f`)
}

func refused(w *worldtest.World, op, want string) {
	w.T.Helper()
	if r := w.Try(w.Change(changetest.Op(w.T, op))); r.Refusal == nil || !strings.Contains(r.Refusal.Error(), want) {
		w.T.Errorf("%s: got %v, want %s", op, r.Refusal, want)
	}
}
