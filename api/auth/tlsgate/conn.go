package tlsgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
)

// HandshakeTime bounds a handshake, on either side.
const HandshakeTime = 10 * time.Second

// Names of what is spoken on a connection (ALPN).
const (
	// RenewProtocol is that of a connection that only renews a certificate: on a port
	// with Port.Renewals, that may have ended.
	RenewProtocol = "rutter-renew"
	plainProtocol = "http/1.1"
)

// Conn is a connection whose other side is authenticated.
type Conn struct {
	*tls.Conn
	keeper *Keeper
	id     matrix.Identity
	leaf   *x509.Certificate // of the other side; nil: it showed none
	usage  x509.ExtKeyUsage  // role in which the other side showed it
	// renews: the other side asked for a connection that only renews its certificate.
	renews bool
	once   sync.Once
}

// Identity returns the identity of the other side.
func (c *Conn) Identity() matrix.Identity { return c.id }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.keeper.mu.Lock()
		delete(c.keeper.conns, c)
		c.keeper.mu.Unlock()
	})
	return c.Conn.Close()
}

// cut closes the connection below TLS, so that no close message waits for a blocked
// write.
func (c *Conn) cut() { _ = c.NetConn().Close() }

// adopt registers a connection, so that the keeper can close it. If its certificate was
// revoked during the handshake, adopt closes it now.
func (k *Keeper) adopt(c *tls.Conn, usage x509.ExtKeyUsage) (*Conn, error) {
	state := c.ConnectionState()
	conn := &Conn{Conn: c, keeper: k, usage: usage, renews: usage == x509.ExtKeyUsageClientAuth && state.NegotiatedProtocol == RenewProtocol}
	if chain := state.PeerCertificates; len(chain) > 0 {
		conn.leaf = chain[0]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if conn.leaf == nil {
		conn.id = matrix.Identity{Role: matrix.Join, Name: host(c.RemoteAddr())}
	} else {
		var err error
		if conn.id, err = conn.verify(k.held.Load().trust, k.cfg.Now()); err != nil {
			return nil, err
		}
	}
	k.conns[conn] = struct{}{}
	return conn, nil
}

// verify checks the other side's certificate again.
func (c *Conn) verify(trust *pki.Trust, now time.Time) (matrix.Identity, error) {
	if c.renews {
		return trust.VerifyRenewal([]*x509.Certificate{c.leaf}, c.usage, now)
	}
	return trust.Verify([]*x509.Certificate{c.leaf}, c.usage, now)
}

func host(a net.Addr) string {
	if h, _, err := net.SplitHostPort(a.String()); err == nil {
		return h
	}
	return a.String()
}

// Role returns a need that accepts the identities of one role.
func Role(role matrix.Role) func(matrix.Identity) error {
	return func(id matrix.Identity) error {
		if id.Role != role {
			return fmt.Errorf("%w: %s, and only a %s is wanted here", pki.ErrRole, id.Actor(), role)
		}
		return nil
	}
}

// Node returns a need that accepts one compute node, or any server.
func Node(cn matrix.Identity) func(matrix.Identity) error {
	return func(id matrix.Identity) error {
		if id.Role != matrix.CN || id.UUID != cn.UUID {
			return fmt.Errorf("%w: %s, and not %s", pki.ErrRole, id.Actor(), cn.Actor())
		}
		return nil
	}
}

// Dial connects to an address, and checks the other side's identity with need.
func (k *Keeper) Dial(ctx context.Context, network, address string, need func(matrix.Identity) error) (net.Conn, error) {
	dialer := net.Dialer{Timeout: HandshakeTime}
	return k.DialWith(ctx, dialer.DialContext, network, address, need)
}

// DialWith is Dial with the connections of another dialler.
func (k *Keeper) DialWith(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), network, address string, need func(matrix.Identity) error) (net.Conn, error) {
	return k.dial(ctx, dial, network, address, k.clientConfig(need))
}

// DialRenewal is Dial for a request that renews the Keeper's own certificate. A server
// accepts it for pki.Grace after the end of that certificate, too.
func (k *Keeper) DialRenewal(ctx context.Context, network, address string, need func(matrix.Identity) error) (net.Conn, error) {
	dialer := net.Dialer{Timeout: HandshakeTime}
	return k.DialRenewalWith(ctx, dialer.DialContext, network, address, need)
}

// DialRenewalWith is DialRenewal with the connections of another dialler.
func (k *Keeper) DialRenewalWith(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), network, address string, need func(matrix.Identity) error) (net.Conn, error) {
	config := k.clientConfig(need)
	if k.cfg.Now().After(k.Leaf().NotAfter) {
		config.NextProtos = []string{RenewProtocol, plainProtocol}
	}
	return k.dial(ctx, dial, network, address, config)
}

func (k *Keeper) dial(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), network, address string, config *tls.Config) (net.Conn, error) {
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn, err := k.shake(ctx, tls.Client(raw, config), x509.ExtKeyUsageServerAuth, HandshakeTime)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s: %w", address, err), raw.Close())
	}
	return conn, nil
}

func (k *Keeper) shake(ctx context.Context, c *tls.Conn, usage x509.ExtKeyUsage, within time.Duration) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return k.adopt(c, usage)
}

// clientConfig returns the TLS configuration of a client. It checks roles instead of
// host names, as the library would: a compute node's certificate is signed by the same
// authority as a server's, and must not be accepted as a server's under any name.
func (k *Keeper) clientConfig(need func(matrix.Identity) error) *tls.Config {
	h := k.current()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyConnection: k.judge(h, x509.ExtKeyUsageServerAuth, need, false),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &h.certificate, nil },
	}
}

// judge returns the check of the other side's certificate. A failed check ends the
// handshake with an alert.
func (k *Keeper) judge(h *held, usage x509.ExtKeyUsage, need func(matrix.Identity) error, orNone bool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 && orNone {
			return nil
		}
		id, err := h.trust.Verify(state.PeerCertificates, usage, k.cfg.Now())
		if err == nil && need != nil {
			err = need(id)
		}
		return err
	}
}
