package tlsgate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"rutter/api/auth/pki"
)

// remoteError is the operation of a net.OpError that stands for an alert of the other
// side (crypto/tls, Conn.readRecordOrCCS).
const remoteError = "remote error"

// Unwelcome returns what is wrong, and what to do about it, if a connection of the
// Keeper failed because of a certificate: its own, which the other side refused by an
// alert, or that of the other side. It returns nil for every other failure.
func (k *Keeper) Unwelcome(err error) error {
	var alert *net.OpError
	switch {
	case errors.As(err, &alert) && alert.Op == remoteError:
		return k.refused(alert.Err.Error())
	case errors.Is(err, pki.ErrAuthority):
		return fmt.Errorf("%w: %s does not have the one of the servers: is it the right cluster? If its authority was replaced meanwhile, copy the file of that name from the operator's folder over it, or get a certificate anew (rutter cert issue, or rutter agent join)", pki.ErrAuthority, k.cfg.CA)
	case errors.Is(err, pki.ErrExpired), errors.Is(err, pki.ErrNotYet):
		return fmt.Errorf("the server's: %w", err)
	case errors.Is(err, pki.ErrRole), errors.Is(err, pki.ErrUsage), errors.Is(err, pki.ErrRevoked), errors.Is(err, pki.ErrMalformed):
		return err
	}
	return nil
}

// refused explains an alert. Servers send certificate_expired and unknown_ca in their
// literal meaning, and bad_certificate for every other defect of a certificate (RFC
// 8446, section 6.2).
func (k *Keeper) refused(alert string) error {
	h := k.held.Load()
	leaf := h.certificate.Leaf
	another := "issue another into that folder (rutter cert issue)"
	if !h.identity.UUID.IsZero() {
		another = "its agent renews it within 90 days of its end, unless it is revoked or its authority was replaced; else join anew (rutter token create, rutter agent join)"
	}
	who := fmt.Sprintf("the certificate of %s, serial %s, in %s", h.identity.Actor(), pki.Serial(leaf), k.cfg.Cert)
	switch {
	case k.cfg.Now().After(leaf.NotAfter), strings.Contains(alert, "expired"):
		return fmt.Errorf("%w: %s ended at %s: %s", pki.ErrExpired, who, leaf.NotAfter.UTC().Format("2006-01-02 15:04:05Z"), another)
	case strings.Contains(alert, "unknown certificate authority"):
		return fmt.Errorf("%w: the servers do not trust who signed %s: it is of another cluster, or its authority was replaced: %s", pki.ErrAuthority, who, another)
	case strings.Contains(alert, "bad certificate") && leaf.ExtKeyUsage[0] == x509.ExtKeyUsageClientAuth:
		return fmt.Errorf("%w: the servers refuse %s: %s, or ask an operator why (rutter cert list)", pki.ErrRevoked, who, another)
	case strings.Contains(alert, "certificate"):
		return fmt.Errorf("%w: the servers refuse %s: %s", pki.ErrUsage, who, alert)
	}
	return nil
}
