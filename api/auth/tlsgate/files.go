package tlsgate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"rutter/api/auth/pki"
)

// Names of files in a folder of certificates.
const (
	CertFile      = "tls.crt"     // certificate for the API
	KeyFile       = "tls.key"     // its private key
	CAFile        = "ca.crt"      // the authorities of clients that are trusted
	CAKeyFile     = "ca.key"      // private keys of the signing ones among them: only operators and servers have it
	PeerCertFile  = "peer.crt"    // certificate of a server for its peers
	PeerKeyFile   = "peer.key"    // its private key
	PeerCAFile    = "peer-ca.crt" // the authorities of peers that are trusted
	PeerCAKeyFile = "peer-ca.key" // private keys of the signing ones among them
)

// nextKey is the suffix of a key file whose certificate has not arrived yet.
// Certificate and key are two files, and a crash may come between them.
const nextKey = ".next"

// Modes of the files that this package writes.
const (
	keyMode    = 0o600
	certMode   = 0o644
	FolderMode = 0o700 // of a folder of certificates
)

// Paths name the files of one identity.
type Paths struct{ Cert, Key, CA string }

// ClientPaths are the files of an identity at the API in a folder.
func ClientPaths(folder string) Paths {
	return Paths{filepath.Join(folder, CertFile), filepath.Join(folder, KeyFile), filepath.Join(folder, CAFile)}
}

// PeerPaths are the files of a server's identity for its peers in a folder.
func PeerPaths(folder string) Paths {
	return Paths{filepath.Join(folder, PeerCertFile), filepath.Join(folder, PeerKeyFile), filepath.Join(folder, PeerCAFile)}
}

// ErrFile: a file cannot be used. The text says which, and why.
var ErrFile = errors.New("tlsgate: unusable file")

func readFile(path string) ([]byte, error) {
	// O_NONBLOCK: do not wait for the other end of a pipe, which cannot be interrupted.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%w: %s is no regular file", ErrFile, path), err)
	}
	text, err := io.ReadAll(io.LimitReader(file, pki.MaxPEM+1))
	if err == nil && len(text) > pki.MaxPEM {
		err = fmt.Errorf("more than %d bytes", pki.MaxPEM)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return text, nil
}

// ReadCertificates reads the certificates of a file.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	list, err := pki.ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return list, nil
}

// ReadKeys reads the private keys of a file, which only its owner may be able to read.
func ReadKeys(path, passphrase string) ([]*ecdsa.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %#o, so that others can use or change the key: chmod 600 it", ErrFile, path, info.Mode().Perm())
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := pki.ParseKeys(text, passphrase)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return keys, nil
}

// load reads an identity. A key that waits for its certificate is used if the
// certificate has arrived.
func (p Paths) load() (tls.Certificate, []*x509.Certificate, error) {
	authorities, err := ReadCertificates(p.CA)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	chain, err := ReadCertificates(p.Cert)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	key, err := p.keyOf(chain[0])
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{chain[0].Raw}, PrivateKey: key, Leaf: chain[0]}, authorities, nil
}

func (p Paths) keyOf(leaf *x509.Certificate) (crypto.Signer, error) {
	keys, err := ReadKeys(p.Key, "")
	if err == nil {
		if key, ok := pki.Pair(leaf, keys); ok {
			return key, nil
		}
		err = fmt.Errorf("%w: %s: %w: the certificate in %s is of another key", ErrFile, p.Key, pki.ErrKey, p.Cert)
	}
	if next, nextErr := ReadKeys(p.Key+nextKey, ""); nextErr == nil {
		if key, ok := pki.Pair(leaf, next); ok {
			return key, nil
		}
	}
	return nil, err
}

// Exists reports whether there is a certificate already.
func (p Paths) Exists() bool {
	_, err := os.Stat(p.Cert)
	return err == nil
}

// NextKey returns the key for the next certificate. It is kept until the certificate
// arrives: a request whose answer was lost is repeated with the same key.
func (p Paths) NextKey() (crypto.Signer, error) {
	if keys, err := ReadKeys(p.Key+nextKey, ""); err == nil {
		return keys[0], nil
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	text, err := pki.EncodeKey(key, "")
	if err != nil {
		return nil, err
	}
	return key, WriteKey(p.Key+nextKey, text)
}

// Install puts the certificate for the key of NextKey in place. After a crash at any
// point, the old pair or the new one can be loaded.
func (p Paths) Install(leaf *x509.Certificate) error {
	keys, err := ReadKeys(p.Key+nextKey, "")
	if err != nil {
		return err
	}
	if _, ok := pki.Pair(leaf, keys); !ok {
		return fmt.Errorf("%w: %w: the certificate that came is of another key than the one that was asked for", ErrFile, pki.ErrKey)
	}
	if err := WriteCertificates(p.Cert, leaf); err != nil {
		return err
	}
	if err := os.Rename(p.Key+nextKey, p.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	return syncFolder(filepath.Dir(p.Key))
}

// WriteCertificates replaces a file of certificates atomically.
func WriteCertificates(path string, list ...*x509.Certificate) error {
	return write(path, pki.EncodeCertificates(list...), certMode)
}

// WriteKey replaces a file that only its owner may read.
func WriteKey(path string, text []byte) error { return write(path, text, keyMode) }

// write replaces a file atomically, through a temporary file.
func write(path string, text []byte, mode os.FileMode) (err error) {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: %w", ErrFile, err), os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
