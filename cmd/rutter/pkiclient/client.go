package pkiclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/enrol"
	"rutter/api/auth/pki"
	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Client sends requests about certificates to the servers.
type Client struct{ API *client.Client }

// Open returns a client of the servers that the flags of term name.
func Open(c *cli.Context) (*Client, error) {
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	return &Client{api}, nil
}

// Call sends form, and decodes the answer into into. Both may be nil.
func (d *Client) Call(ctx context.Context, method, path string, form, into any) error {
	var body []byte
	if form != nil {
		var err error
		if body, err = json.Marshal(form); err != nil {
			return err
		}
	}
	raw, err := d.API.Raw(ctx, method, enrol.Path+path, body)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// Certificate is a certificate as `rutter cert list` prints it.
type Certificate struct {
	log.Certificate
	State string `json:"state"` // good, ended or revoked
}

// Certificates returns the certificates of the log, each with its state.
func (d *Client) Certificates(ctx context.Context) ([]Certificate, error) {
	var revoked []*log.Revocation
	var all []Certificate
	var plain []log.Certificate
	if err := errors.Join(d.Call(ctx, "GET", "/revocations", nil, &revoked), d.Call(ctx, "GET", "/certificates", nil, &plain)); err != nil {
		return nil, err
	}
	covering := pki.NewRevocations(revoked)
	for _, one := range plain {
		l := Certificate{one, "good"}
		switch {
		case time.Now().After(one.NotAfter.Std()):
			l.State = "ended"
		case covering.CoversRecord(&one) != "":
			l.State = "revoked"
		}
		all = append(all, l)
	}
	return all, nil
}

// After returns what to write into a certificate that is issued by hand to an identity, named
// as pki.Subject does, after its newest revocation. It is zero if there is none.
func (d *Client) After(ctx context.Context, identity string) (pki.After, error) {
	var revoked []*log.Revocation
	if err := d.Call(ctx, "GET", "/revocations", nil, &revoked); err != nil {
		return pki.After{}, err
	}
	status, err := d.API.Status(ctx)
	if err != nil {
		return pki.After{}, err
	}
	return pki.NewRevocations(revoked).In(status.Head.Cluster).After(identity), nil
}

// Holders returns the identities whose newest good certificate of a set is not issued
// by an authority.
func (d *Client) Holders(ctx context.Context, name, issuer string) ([]string, error) {
	all, err := d.Certificates(ctx)
	if err != nil {
		return nil, err
	}
	newest := make(map[string]Certificate)
	for _, one := range all {
		if one.Authority == name && one.State == "good" && one.NotBefore >= newest[one.Identity].NotBefore {
			newest[one.Identity] = one
		}
	}
	var old []string
	for who, one := range newest {
		if one.Issuer != issuer {
			old = append(old, who)
		}
	}
	slices.Sort(old)
	return old, nil
}

// Token is a new token, as it is printed.
type Token struct {
	Token   string   `json:"token"`
	UUID    log.UUID `json:"uuid"`
	CN      log.UUID `json:"cn_uuid"`
	Expires log.Time `json:"expires"`
	CAHash  string   `json:"ca_hash"`
}

// MakeToken makes a token that lets a compute node join, once, for ttl.
func (d *Client) MakeToken(ctx context.Context, cn log.UUID, ttl time.Duration) (token pki.Token, made Token, err error) {
	if token, err = pki.NewToken(rand.Reader); err != nil {
		return token, made, err
	}
	form := enrol.TokenForm{UUID: token.ID, Hash: token.Hash(), CN: cn, Expires: log.Time(time.Now().Add(ttl).UnixNano())}
	var answer struct {
		CAHash string `json:"ca_hash"`
	}
	if err = d.Call(ctx, "POST", "/tokens", form, &answer); err != nil {
		return token, made, err
	}
	return token, Token{token.Reveal(), token.ID, cn, form.Expires, answer.CAHash}, nil
}

// parseGranted parses a server's answer to a request for a certificate.
func parseGranted(granted *enrol.Granted) (leaf *x509.Certificate, authorities []*x509.Certificate, err error) {
	list, err := pki.ParseCertificates([]byte(granted.Certificate))
	if err != nil {
		return nil, nil, err
	}
	authorities, err = pki.ParseCertificates(bytes.TrimSpace([]byte(granted.Authorities)))
	return list[0], authorities, err
}
