package tlsgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
)

// acceptPause is how long a listener waits after a temporary failure to accept, such as
// too many open files.
const acceptPause = 50 * time.Millisecond

// Port says which identities a listener admits.
type Port struct {
	// Name is for logs and metrics: api, raft, cn-api.
	Name string
	// Need refuses identities by an error. nil: every identity with a certificate is
	// admitted.
	Need func(matrix.Identity) error
	// OrNone admits clients without a certificate, as matrix.Join.
	OrNone bool
	// Renewals admits compute nodes whose certificate has ended at most pki.Grace ago, as
	// matrix.Expired, on connections that say that they renew it (RenewProtocol).
	Renewals bool
	// Failed is called for each failed handshake, and for each connection that was
	// closed before one. It must not block. It may be nil.
	Failed func(remote net.Addr, err error)
}

// Listener returns connections of type *Conn whose handshake is complete.
type Listener struct {
	net.Listener
	keeper     *Keeper
	port       Port
	handshakes *handshakeTable
	ready      chan *Conn
	done       chan struct{}
	wg         sync.WaitGroup
	begin      sync.Once
	end        sync.Once

	mu     sync.Mutex // protects what follows
	broken error      // of the listener below
}

// Listener returns a listener over inner that admits the identities of port.
func (k *Keeper) Listener(inner net.Listener, port Port) *Listener {
	return &Listener{
		Listener: inner, keeper: k, port: port, handshakes: newHandshakeTable(time.Now), ready: make(chan *Conn), done: make(chan struct{}),
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { l.wg.Go(l.accept) })
	select {
	case conn := <-l.ready:
		l.handshakes.leave(conn.NetConn().(*handshakeConn))
		return conn, nil
	case <-l.done:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.broken != nil {
			return nil, l.broken
		}
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It cancels pending handshakes and waits for them.
func (l *Listener) Close() error {
	err := l.stop(nil)
	l.wg.Wait()
	return err
}

func (l *Listener) stop(broken error) (err error) {
	l.end.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.broken = broken
		close(l.done)
		err = l.Listener.Close()
		l.handshakes.close()
	})
	return err
}

func (l *Listener) accept() {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if !passing(err) {
				_ = l.stop(err)
				return
			}
			select {
			case <-l.done:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		g, err := l.handshakes.enter(raw, l.done)
		if err != nil {
			l.failed(raw, err)
			dismiss(raw)
			continue
		}
		l.wg.Go(func() { l.shake(g) })
	}
}

// dismiss closes a connection without a handshake, by a reset. A reset leaves no
// waiting state in the kernel, even at a thousand a second.
func dismiss(raw net.Conn) {
	if c, ok := raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0) // else the kernel would wait for the other side's FIN
	}
	raw.Close()
}

// passing reports whether accepting may work again.
func passing(err error) bool {
	var temporary interface{ Temporary() bool }
	return !errors.Is(err, net.ErrClosed) && errors.As(err, &temporary) && temporary.Temporary()
}

// shake does the handshake of one connection and passes it to Accept.
func (l *Listener) shake(g *handshakeConn) {
	conn, err := l.greet(g)
	if err != nil {
		g.Close()
		l.handshakes.leave(g)
		return
	}
	select {
	case l.ready <- conn:
	case <-l.done:
		conn.Close()
		l.handshakes.leave(g)
	}
}

func (l *Listener) greet(g *handshakeConn) (*Conn, error) {
	select {
	case <-l.done: // it became ready while Close ran
		return nil, net.ErrClosed
	default:
	}
	conn, err := l.keeper.shake(context.Background(), tls.Server(g, l.config(g)), x509.ExtKeyUsageClientAuth, g.time)
	if err != nil {
		err = namedFailure(err, l.keeper.cfg.Now())
		l.refuse(g.Conn, err)
	}
	var who matrix.Identity
	if err == nil {
		who = conn.Identity()
	}
	if err = l.handshakes.done(g, who, err); err != nil {
		if conn != nil {
			conn.Close()
		}
		l.failed(g.Conn, err)
		return nil, err
	}
	l.keeper.stats.shaken(l.port.Name, nil)
	return conn, nil
}

// failed counts a failed handshake, and calls Port.Failed.
func (l *Listener) failed(raw net.Conn, err error) {
	l.keeper.stats.shaken(l.port.Name, err)
	if l.port.Failed != nil {
		l.port.Failed(raw.RemoteAddr(), err)
	}
}

// refuse answers a client that speaks plain HTTP with the reason, and logs the refusal.
func (l *Listener) refuse(raw net.Conn, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(raw, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nthis port speaks TLS: use https://, with a certificate (rutter cert)\n")
	}
	level := slog.LevelDebug // unauthenticated clients must not fill the log
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && l.keeper.stats.mayLog() {
		level = slog.LevelInfo
	}
	if errors.Is(err, pki.ErrRevoked) || errors.Is(err, pki.ErrExpired) {
		linger(raw)
	}
	l.keeper.cfg.Logger.Log(context.Background(), level, "TLS handshake refused", "port", l.port.Name, "remote", raw.RemoteAddr(), "error", err)
}

// lingerTime bounds how long a connection is kept whose certificate was good once.
const lingerTime = 200 * time.Millisecond

// linger reads what the other side sent after its handshake. If the connection were
// closed with unread data, the kernel would reset it, and the alert could be lost. It
// is used only for failures that an operator may ask about.
func linger(raw net.Conn) {
	half, ok := raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || raw.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, raw, lingerBytes) // the data is discarded
}

// lingerBytes bounds what linger reads.
const lingerBytes = 64 << 10

// namedFailure maps errors of the library's check to the errors of package pki.
func namedFailure(err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("%w: %w", pki.ErrAuthority, err)
	case !errors.As(err, &invalid):
		return err
	case invalid.Reason == x509.Expired && invalid.Cert.NotAfter.Before(now):
		return fmt.Errorf("%w: %w", pki.ErrExpired, err)
	case invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: %w", pki.ErrNotYet, err)
	case invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("%w: %w", pki.ErrUsage, err)
	}
	return err
}

func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO":
		return true
	}
	return false
}

// config returns the TLS configuration of one connection. Session tickets are off,
// because a resumed session would show the old certificate.
func (l *Listener) config(g *handshakeConn) *tls.Config {
	h := l.keeper.current()
	// The library's check is only the first part of this package's check. It is used
	// for its alerts, which distinguish an expired certificate from an unknown
	// authority.
	auth := tls.RequireAndVerifyClientCert
	if l.port.OrNone {
		auth = tls.VerifyClientCertIfGiven
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: []string{plainProtocol},
		Certificates: []tls.Certificate{h.certificate}, ClientAuth: auth,
		ClientCAs: h.trust.Roots(), Time: l.keeper.cfg.Now,
		VerifyConnection: l.keeper.judge(h, x509.ExtKeyUsageClientAuth, l.port.Need, l.port.OrNone),
	}
	renewing := l.renewal(config, h)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		err := g.acquireProcessor(hello.Context())
		if err == nil && l.port.Renewals && slices.Contains(hello.SupportedProtos, RenewProtocol) {
			return renewing, nil
		}
		return nil, err
	}
	return config
}

// renewal returns the configuration of a connection that only renews a certificate. The
// library would refuse one that has ended, so that only this package checks it.
func (l *Listener) renewal(plain *tls.Config, h *held) *tls.Config {
	config := plain.Clone()
	config.NextProtos, config.ClientAuth = []string{RenewProtocol}, tls.RequireAnyClientCert
	config.VerifyConnection = func(state tls.ConnectionState) error {
		id, err := h.trust.VerifyRenewal(state.PeerCertificates, x509.ExtKeyUsageClientAuth, l.keeper.cfg.Now())
		if err == nil && l.port.Need != nil {
			err = l.port.Need(id)
		}
		return err
	}
	return config
}
