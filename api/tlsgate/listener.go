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
	"sync"
	"time"

	"rutter/api/access"
	"rutter/api/pki"
)

// MaxHandshakes bounds the handshakes of one listener that are under way.
// Beyond, connections wait in the kernel's queue.
const MaxHandshakes = 256

// acceptPause is how long a listener waits after a passing failure to accept,
// such as too many open files.
const acceptPause = 50 * time.Millisecond

// Port says whom a listener lets in.
type Port struct {
	// Name is for logs and metrics: api, raft, cn-api.
	Name string
	// Need refuses identities, by an error. nil: none that has a certificate.
	Need func(access.Identity) error
	// OrNone lets in who shows no certificate, as access.Join.
	OrNone bool
}

// Listener hands out connections of type *Conn whose handshake is done.
type Listener struct {
	net.Listener
	keeper *Keeper
	port   Port
	slots  chan struct{}
	ready  chan net.Conn
	done   chan struct{}
	wg     sync.WaitGroup
	begin  sync.Once
	end    sync.Once

	mu     sync.Mutex // protects what follows
	broken error      // of the listener below
	shakes map[net.Conn]struct{}
}

// Listener lets in over inner whom port is for.
func (k *Keeper) Listener(inner net.Listener, port Port) *Listener {
	return &Listener{
		Listener: inner, keeper: k, port: port, slots: make(chan struct{}, MaxHandshakes),
		ready: make(chan net.Conn), done: make(chan struct{}), shakes: make(map[net.Conn]struct{}),
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { l.wg.Go(l.accept) })
	select {
	case conn := <-l.ready:
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

// Close implements net.Listener: handshakes under way are given up, and waited for.
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
		for raw := range l.shakes {
			raw.Close()
		}
	})
	return err
}

func (l *Listener) accept() {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			return
		}
		raw, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
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
		l.wg.Go(func() { l.shake(raw) })
	}
}

// passing reports whether accepting may work again.
func passing(err error) bool {
	var temporary interface{ Temporary() bool }
	return !errors.Is(err, net.ErrClosed) && errors.As(err, &temporary) && temporary.Temporary()
}

// shake does the handshake of one connection and hands it on.
func (l *Listener) shake(raw net.Conn) {
	conn, err := l.greet(raw)
	<-l.slots
	if err != nil {
		raw.Close()
		return
	}
	select {
	case l.ready <- conn:
	case <-l.done:
		conn.Close()
	}
}

func (l *Listener) greet(raw net.Conn) (*Conn, error) {
	l.mu.Lock()
	select {
	case <-l.done:
		l.mu.Unlock()
		return nil, net.ErrClosed
	default:
	}
	l.shakes[raw] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.shakes, raw)
		l.mu.Unlock()
	}()
	conn, err := l.keeper.shake(context.Background(), tls.Server(raw, l.config()), x509.ExtKeyUsageClientAuth)
	if err != nil {
		err = namedFailure(err)
		l.refuse(raw, err)
	}
	l.keeper.stats.shaken(l.port.Name, err)
	return conn, err
}

// refuse tells who speaks plain HTTP what is wrong, and the log what was refused.
func (l *Listener) refuse(raw net.Conn, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(raw, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nthis port speaks TLS: use https://, with a certificate (rutter cert)\n")
	}
	level := slog.LevelDebug // strangers must not fill the log
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && l.keeper.stats.mayLog() {
		level = slog.LevelInfo
	}
	if errors.Is(err, pki.ErrRevoked) || errors.Is(err, pki.ErrExpired) {
		linger(raw)
	}
	l.keeper.cfg.Logger.Log(context.Background(), level, "TLS handshake refused", "port", l.port.Name, "remote", raw.RemoteAddr(), "error", err)
}

// lingerTime bounds how long a connection is kept whose certificate was once good.
const lingerTime = 200 * time.Millisecond

// linger reads what the other side sent behind its handshake: a connection that
// is closed before it was read is reset, and its alert may be lost with it. Only
// those are worth it that a person may wonder about.
func linger(raw net.Conn) {
	half, ok := raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || raw.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, raw, lingerBytes) // whatever it is, it is for nobody
}

// lingerBytes is how much of it is read at most.
const lingerBytes = 64 << 10

// namedFailure gives failures of the library's check the names that ours have.
func namedFailure(err error) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("%w: %w", pki.ErrAuthority, err)
	case !errors.As(err, &invalid):
		return err
	case invalid.Reason == x509.Expired && invalid.Cert.NotAfter.Before(time.Now()):
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

// config is that of one connection. There are no session tickets: a session that
// is taken up again would show the certificate of before.
func (l *Listener) config() *tls.Config {
	h := l.keeper.current()
	// The library's own check is no more than the first part of ours, and there for
	// its alerts: they tell the other side an end from an authority.
	auth := tls.RequireAndVerifyClientCert
	if l.port.OrNone {
		auth = tls.VerifyClientCertIfGiven
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
		Certificates: []tls.Certificate{h.certificate}, ClientAuth: auth,
		ClientCAs: h.trust.Roots(), Time: l.keeper.cfg.Now,
		VerifyConnection: l.keeper.judge(h, x509.ExtKeyUsageClientAuth, l.port.Need, l.port.OrNone),
	}
}
