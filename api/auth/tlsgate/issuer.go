package tlsgate

import (
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
)

// Issuer is an operator's folder with the keys of the authorities: ca.crt, ca.key,
// peer-ca.crt and peer-ca.key. The first authority of a file signs. Only one process at
// a time may use it.
type Issuer struct {
	Folder     string
	Passphrase string // of the keys; "": they are not encrypted
}

func (o Issuer) files(name string) (certs, keys string) {
	if name == pki.Peers {
		return filepath.Join(o.Folder, PeerCAFile), filepath.Join(o.Folder, PeerCAKeyFile)
	}
	return filepath.Join(o.Folder, CAFile), filepath.Join(o.Folder, CAKeyFile)
}

// sets are the names of both sets of authorities.
var sets = []string{pki.Clients, pki.Peers}

// Init makes the authorities of a new cluster. It refuses a folder that already has
// some.
func (o Issuer) Init(life time.Duration) error {
	if err := makeFolder(o.Folder); err != nil {
		return err
	}
	for _, name := range sets {
		if certs, _ := o.files(name); exists(certs) {
			return fmt.Errorf("%w: %s is there already: whoever replaces it locks out all who have certificates of it; choose another folder, or rotate (rutter cert rotate)", ErrFile, certs)
		}
	}
	for _, name := range sets {
		a, err := pki.NewAuthority(name, time.Now(), life, rand.Reader)
		if err != nil {
			return err
		}
		if err := o.write(name, []*pki.Authority{a}); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeFolder makes a folder that only its owner may read. It refuses one that others
// may write to.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, FolderMode); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: others may write to %s (mode %#o): chmod 700 it", ErrFile, path, info.Mode().Perm())
	}
	return nil
}

// write replaces the authorities of a set, keys first: an additional key does no harm.
func (o Issuer) write(name string, list []*pki.Authority) error {
	certs, keys := o.files(name)
	var text []byte
	var certificates []*x509.Certificate
	for _, a := range list {
		one, err := pki.EncodeKey(a.Key, "")
		if err != nil {
			return err
		}
		text = append(text, one...)
		certificates = append(certificates, a.Certificate)
	}
	if o.Passphrase != "" {
		var err error
		if text, err = pki.Seal(text, o.Passphrase); err != nil {
			return err
		}
	}
	return errors.Join(WriteKey(keys, text), WriteCertificates(certs, certificates...))
}

// Authorities returns the authorities of a set, the signing one first.
func (o Issuer) Authorities(name string) ([]*pki.Authority, error) {
	certs, keyFile := o.files(name)
	certificates, err := ReadCertificates(certs)
	if err != nil {
		return nil, fmt.Errorf("%w (rutter cert init makes them)", err)
	}
	keys, err := ReadKeys(keyFile, o.Passphrase)
	if err != nil {
		return nil, err
	}
	var list []*pki.Authority
	for _, c := range certificates {
		if key, ok := pki.Pair(c, keys); ok {
			list = append(list, &pki.Authority{Certificate: c, Key: key})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s has no key of an authority in %s", ErrFile, keyFile, certs)
	}
	return list, nil
}

// Add makes another authority of a set, which does not sign yet, and returns it.
func (o Issuer) Add(name string, life time.Duration) (*pki.Authority, error) {
	list, err := o.Authorities(name)
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		return nil, fmt.Errorf("%w: %s has two authorities already: finish that rotation first", ErrFile, o.Folder)
	}
	a, err := pki.NewAuthority(name, time.Now(), life, rand.Reader)
	if err != nil {
		return nil, err
	}
	return a, o.write(name, append(list, a))
}

// Promote makes the authority that was added last the signing one.
func (o Issuer) Promote(name string) error {
	list, err := o.Authorities(name)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b *pki.Authority) int { return b.Certificate.NotBefore.Compare(a.Certificate.NotBefore) })
	return o.write(name, list)
}

// Drop removes all authorities except the signing one from the folder.
func (o Issuer) Drop(name string) error {
	list, err := o.Authorities(name)
	if err != nil {
		return err
	}
	return o.write(name, list[:1])
}

// Grant says what Issue must write.
type Grant struct {
	Identity matrix.Identity
	Hosts    []string // of a server
	// Life is 0 for the usual one: pki.NodeLife of those who renew it themselves, which
	// are compute nodes and servers with keys, else pki.Life.
	Life time.Duration
	// WithKeys gives a server the authorities' keys, so that compute nodes can join at
	// it and it can renew its own certificates. If the keys here are encrypted, the
	// copies are too, and the server needs the passphrase.
	WithKeys bool
	// After names the newest revocation of the identity in the cluster's log, zero if it has
	// none: see pki.After.
	After pki.After
}

// Issue fills a folder with what an identity needs, and returns its certificates: first
// that of the API, then a server's for its peers.
func (o Issuer) Issue(folder string, g Grant) ([]*x509.Certificate, error) {
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	first, err := o.issue(pki.Clients, ClientPaths(folder), g)
	if err != nil || g.Identity.Role != matrix.Server {
		return []*x509.Certificate{first}, err
	}
	second, err := o.issue(pki.Peers, PeerPaths(folder), g)
	if err != nil {
		return nil, err
	}
	if g.WithKeys {
		for _, name := range sets {
			if err := o.HandOver(name, folder); err != nil {
				return nil, err
			}
		}
	}
	return []*x509.Certificate{first, second}, nil
}

// HandOver copies the keys of a set to a server's folder, as in a rotation. The copies
// are encrypted if the originals are.
func (o Issuer) HandOver(name, folder string) error {
	_, from := o.files(name)
	text, err := readFile(from)
	if err != nil {
		return err
	}
	_, to := Issuer{Folder: folder}.files(name)
	return WriteKey(to, text)
}

func (o Issuer) issue(name string, paths Paths, g Grant) (*x509.Certificate, error) {
	list, err := o.Authorities(name)
	if err != nil {
		return nil, err
	}
	key, err := paths.NextKey()
	if err != nil {
		return nil, err
	}
	if g.Life == 0 {
		g.Life = pki.Life
		if g.Identity.Role == matrix.CN || g.Identity.Role == matrix.Server && g.WithKeys {
			g.Life = pki.NodeLife
		}
	}
	c, err := list[0].Issue(pki.Order{Identity: g.Identity, Key: key.Public(), Hosts: g.Hosts, Life: g.Life, After: g.After}, time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	var trusted []*x509.Certificate
	for _, a := range list {
		trusted = append(trusted, a.Certificate)
	}
	return c, errors.Join(WriteCertificates(paths.CA, trusted...), paths.Install(c))
}
