package tlsgate

import (
	"errors"
	"io"
	"testing"
	"time"

	"rutter/api/auth/pki"
	"rutter/log"
)

// Who is refused can tell why, from the alert and its own certificate.
func TestUnwelcome(t *testing.T) {
	now := time.Now()
	ours, others := newAuthority(t, pki.Clients, now.Add(-pki.Life)), newAuthority(t, pki.Clients, now)
	server := keep(t, identity(t, ours, serverID, now.Add(-time.Hour), pki.Life))
	address := listen(t, server, Port{Name: "api", OrNone: true})
	good := keep(t, identity(t, ours, operatorID, now, pki.Life))
	revoked := keep(t, identity(t, ours, operatorID, now, pki.Life))
	server.Revoke(pki.NewRevocations([]*log.Revocation{{Subject: "serial:" + revoked.Identity().Serial}}))
	stranger := identity(t, others, operatorID, now, pki.Life)
	ended := identity(t, ours, operatorID, now.Add(-time.Hour), time.Hour-time.Minute)
	early := func() time.Time { return now.Add(-30 * time.Minute) } // its clock is wrong
	late, err := New(Config{Paths: ended, Name: pki.Clients, Now: early})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		k    *Keeper
		want error
	}{
		"good": {good, nil}, "revoked": {revoked, pki.ErrRevoked}, "of others": {keep(t, stranger), pki.ErrAuthority}, "ended": {late, pki.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := c.k.Dial(t.Context(), "tcp", address, Role(serverID.Role))
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
				_, err = hear(conn)
			}
			if got := c.k.Unwelcome(err); c.want == nil && (got != nil || err != nil) || !errors.Is(got, c.want) {
				t.Errorf("%v is told as %v, want %v", err, got, c.want)
			}
		})
	}
	if got := good.Unwelcome(io.ErrUnexpectedEOF); got != nil {
		t.Errorf("a broken connection is told as %v", got)
	}
}
