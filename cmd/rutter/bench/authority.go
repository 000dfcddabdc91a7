package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
)

// dialTime bounds a connection over TLS, handshake included. Thousands may be made at
// once on this machine.
const dialTime = 20 * time.Second

// Authority makes the certificates of a cluster, those of clients in memory.
type Authority struct {
	issuer  tlsgate.Issuer
	clients *pki.Authority
}

func openAuthority(folder string) (*Authority, error) {
	o := &Authority{issuer: tlsgate.Issuer{Folder: folder}}
	if err := o.issuer.Init(pki.AuthorityLife); err != nil {
		return nil, err
	}
	certificates, err := tlsgate.ReadCertificates(filepath.Join(folder, tlsgate.CAFile))
	if err != nil {
		return nil, err
	}
	keys, err := tlsgate.ReadKeys(filepath.Join(folder, tlsgate.CAKeyFile), "")
	if err != nil {
		return nil, err
	}
	o.clients = &pki.Authority{Certificate: certificates[0], Key: keys[0]}
	return o, nil
}

func (o *Authority) issueServer(folder, id string, hosts ...string) error {
	_, err := o.issuer.Issue(folder, tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Server, Name: id}, Hosts: append(hosts, "127.0.0.1"), Life: pki.Life, WithKeys: true})
	return err
}

// Certificate issues a certificate.
func (o *Authority) Certificate(id matrix.Identity) (*tls.Certificate, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := o.clients.Issue(pki.Order{Identity: id, Key: key.Public(), Life: pki.Life}, time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// Dialer issues a certificate and returns a function that connects with it. The
// certificates of servers are not verified, because this machine started them.
func (o *Authority) Dialer(id matrix.Identity) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	certificate, err := o.Certificate(id)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil },
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		raw, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		return conn, nil
	}, nil
}
