package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// Types of PEM blocks (RFC 7468).
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// MaxPEM bounds what is read from a file of certificates or keys, in bytes.
const MaxPEM = 1 << 20

// ErrPassphrase: a key is encrypted, and the passphrase is missing or wrong.
var ErrPassphrase = errors.New("pki: the key is encrypted, and this passphrase does not open it")

// EncodeCertificates returns certificates in PEM, one after another.
func EncodeCertificates(list ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range list {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: c.Raw})...)
	}
	return out
}

// ParseCertificates reads all certificates of a text in PEM. A text without one is an
// error.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != blockCertificate {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, errors.New("pki: there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
	}
	return list, nil
}

// EncodeKey returns a private key in PEM (PKCS #8), encrypted if there is a passphrase.
func EncodeKey(key crypto.Signer, passphrase string) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	plain := pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der})
	if passphrase == "" {
		return plain, nil
	}
	return Seal(plain, passphrase)
}

// Seal encrypts keys with age and scrypt. That format has few options, and its own tool
// opens it (age -d). PKCS #8's encryption has many options, and the standard library
// supports none of them.
func Seal(plain []byte, passphrase string) ([]byte, error) {
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, recipient)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := errors.Join(w.Close(), armored.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Encrypted reports whether keys are encrypted.
func Encrypted(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte(armor.Header)) }

// ParseKeys reads the private keys of a text that EncodeKey wrote.
func ParseKeys(text []byte, passphrase string) ([]*ecdsa.PrivateKey, error) {
	if Encrypted(text) {
		var err error
		if text, err = decrypt(text, passphrase); err != nil {
			return nil, err
		}
	}
	var keys []*ecdsa.PrivateKey
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != blockKey {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: key %d: %w", ErrKey, len(keys)+1, err)
		}
		k, ok := key.(*ecdsa.PrivateKey)
		if !ok || checkKey(k.Public()) != nil {
			return nil, fmt.Errorf("%w: key %d is of %T, not ECDSA on P-256", ErrKey, len(keys)+1, key)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: there is none in PEM (-----BEGIN PRIVATE KEY-----)", ErrKey)
	}
	return keys, nil
}

func decrypt(text []byte, passphrase string) ([]byte, error) {
	if passphrase == "" {
		return nil, fmt.Errorf("%w: none was given (--passphrase-file)", ErrPassphrase)
	}
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(text)), identity)
	if err != nil {
		return nil, ErrPassphrase
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxPEM))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPassphrase, err)
	}
	return plain, nil
}

// Base64 is a certificate as log.Authority has it, and FromBase64 its inverse.
func Base64(c *x509.Certificate) string { return base64.StdEncoding.EncodeToString(c.Raw) }

// FromBase64 reads a certificate as log.Authority has it.
func FromBase64(text string) (*x509.Certificate, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// Pair finds the key of a certificate among keys.
func Pair(c *x509.Certificate, keys []*ecdsa.PrivateKey) (*ecdsa.PrivateKey, bool) {
	for _, k := range keys {
		if k.PublicKey.Equal(c.PublicKey) {
			return k, true
		}
	}
	return nil, false
}
