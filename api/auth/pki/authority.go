package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// Names of the two sets of authorities, as log.Authority has them.
const (
	Clients = "clients" // of all certificates for the API
	Peers   = "peers"   // of servers, for connections between them
)

// Default lifetimes of certificates.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// Life is that of people's certificates, which people renew.
	Life = 90 * 24 * time.Hour
	// Backdate is how far before its issue a certificate becomes valid, so that clocks
	// may differ. Use Issued to compare times of issue.
	Backdate = time.Duration(log.CertificateBackdate)
	// NodeLife is the life of certificates that are renewed without people: those of
	// compute nodes, and of servers that have the authorities' keys.
	NodeLife = 7 * 24 * time.Hour
	// Grace is how long after its end a certificate that is not revoked may still be
	// renewed.
	Grace = time.Duration(log.RenewalGrace)
	// MaxLife bounds the lifetime that may be requested: an identity must be renewed,
	// or end.
	MaxLife = 825 * 24 * time.Hour
)

// serialBytes is the length of a serial number in bytes. Serial numbers are random, so
// that they reveal nothing and are never used twice (RFC 5280, section 4.1.2.2 allows
// 20).
const serialBytes = 16

// ErrKey: a public key of a type that is not accepted, or a private key that does not
// belong to the certificate.
var ErrKey = errors.New("pki: not a key that fits")

// Authority signs certificates.
type Authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// NewKey returns a new private key. Its randomness is the system's, because the library
// takes no other source.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// KeyID names a public key: the hexadecimal SHA-256 of its DER.
func KeyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// CertificateKeyID is KeyID of the key that a certificate is about.
func CertificateKeyID(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// CAHash is the fingerprint that an operator gives to a joining machine, so that its
// first connection trusts the right authority: sha256: and CertificateKeyID.
func CAHash(authority *x509.Certificate) string { return "sha256:" + CertificateKeyID(authority) }

// Issued returns when a certificate of this package was issued.
func Issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(Backdate) }

// Serial returns a certificate's serial number as log.Certificate has it.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

func newSerial(random io.Reader) (*big.Int, error) {
	b := make([]byte, serialBytes)
	if _, err := io.ReadFull(random, b); err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and of one length
	return new(big.Int).SetBytes(b), nil
}

// NewAuthority makes a key and the certificate of an authority that is valid
// from now on for life.
func NewAuthority(name string, now time.Time, life time.Duration, random io.Reader) (*Authority, error) {
	if name != Clients && name != Peers {
		return nil, fmt.Errorf("pki: authority %q: want %s or %s", name, Clients, Peers)
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	id, err := KeyID(key.Public())
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Two authorities with one name must also have different subjects.
		Subject:   pkix.Name{Organization: []string{"Rutter"}, CommonName: "Rutter " + name + " " + id[:8]},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate, key}, nil
}

// Order is the content of a certificate to issue.
type Order struct {
	Identity matrix.Identity
	Key      crypto.PublicKey
	Hosts    []string // names and addresses of a server, for browsers
	Life     time.Duration
	// After names the newest revocation of the identity in the log by which the certificate
	// is granted. See Revocations.After.
	After After
}

// Issue signs a certificate that is valid from now on, at most as long as the authority
// itself. Certificates of servers and of compute nodes are valid for either side of a
// connection, because servers call compute nodes. Those of people are valid for clients
// only.
func (a *Authority) Issue(o Order, now time.Time, random io.Reader) (*x509.Certificate, error) {
	uri, err := o.Identity.URI()
	if err != nil {
		return nil, err
	}
	if err := checkKey(o.Key); err != nil {
		return nil, err
	}
	if o.Life <= 0 || o.Life > MaxLife {
		return nil, fmt.Errorf("pki: a life of %v: want more than 0, at most %v", o.Life, MaxLife)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Rutter"}, CommonName: o.Identity.Actor()},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(o.Life),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, URIs: []*url.URL{uri},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if o.Identity.Role == matrix.Server || o.Identity.Role == matrix.CN {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if !o.After.IsZero() {
		extension, err := o.After.extension()
		if err != nil {
			return nil, err
		}
		template.ExtraExtensions = []pkix.Extension{extension}
	}
	if len(o.Hosts) > 0 && o.Identity.Role != matrix.Server {
		return nil, fmt.Errorf("pki: hosts for a %s: only servers have them", o.Identity.Role)
	}
	for _, host := range o.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if end := a.Certificate.NotAfter; template.NotAfter.After(end) {
		template.NotAfter = end
	}
	if !template.NotAfter.After(now) {
		return nil, fmt.Errorf("%w: the authority ended at %s: rotate it (rutter cert rotate)", ErrExpired, a.Certificate.NotAfter)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, o.Key, a.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", o.Identity.Actor(), err)
	}
	return x509.ParseCertificate(der)
}

// checkKey accepts only ECDSA on P-256.
func checkKey(key crypto.PublicKey) error {
	k, ok := key.(*ecdsa.PublicKey)
	if !ok || k.Curve != elliptic.P256() {
		return fmt.Errorf("%w: want ECDSA on P-256, got %T", ErrKey, key)
	}
	return nil
}

// NewRequest returns a certificate request (PKCS #10, DER) for a key. The request names
// no identity: the server decides it.
func NewRequest(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// ParseRequest returns the key of a request, after it checked that the sender has the
// private half. It ignores what else the request asks for.
func ParseRequest(der []byte) (crypto.PublicKey, error) {
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	if err := checkKey(request.PublicKey); err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return request.PublicKey, nil
}
