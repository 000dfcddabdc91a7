package pkiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/term"
)

// joinTimeout bounds the whole of joining at one server.
const joinTimeout = 30 * time.Second

// ErrHash: no authority of the server has the expected hash.
var ErrHash = errors.New("the server's authority is not the one that is wanted")

// Join requests a certificate with a token from one server, and writes it, its key and
// the authorities to trust into folder. On the first connection it accepts only the
// authority with the expected hash. The token goes over a second connection, to a
// server of that authority only.
func Join(ctx context.Context, server string, token pki.Token, hash, folder string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if !strings.HasPrefix(server, "https://") {
		return nil, term.Usagef("a token is only sent over TLS: name the server as https://HOST:PORT")
	}
	authority, err := fetchAuthority(ctx, server, hash)
	if err != nil {
		return nil, err
	}
	trust, err := pki.NewTrust([]*x509.Certificate{authority}, pki.Revocations{})
	if err != nil {
		return nil, err
	}
	paths := tlsgate.ClientPaths(folder)
	if err := os.MkdirAll(folder, tlsgate.FolderMode); err != nil {
		return nil, err
	}
	key, err := paths.NextKey()
	if err != nil {
		return nil, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, err
	}
	var granted enrol.Granted
	if err := ask(ctx, http.MethodPost, server+enrol.Path+"/join", enrol.JoinRequest{Token: token.Reveal(), Request: request}, &granted, func(state tls.ConnectionState) error {
		id, err := trust.Verify(state.PeerCertificates, x509.ExtKeyUsageServerAuth, time.Now())
		if err == nil {
			err = tlsgate.Role(matrix.Server)(id)
		}
		return err
	}); err != nil {
		return nil, err
	}
	leaf, authorities, err := parseGranted(&granted)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tlsgate.WriteCertificates(paths.CA, authorities...), paths.Install(leaf)); err != nil {
		return nil, err
	}
	return leaf, nil
}

// fetchAuthority returns that one of the server's authorities that has the hash.
func fetchAuthority(ctx context.Context, server, hash string) (*x509.Certificate, error) {
	var bundle enrol.Bundle
	if err := ask(ctx, http.MethodGet, server+enrol.Path+"/bundle", nil, &bundle, nil); err != nil {
		return nil, err
	}
	list, err := pki.ParseCertificates([]byte(bundle.Authorities))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(c *x509.Certificate) bool { return strings.EqualFold(pki.CAHash(c), hash) })
	if i < 0 {
		return nil, fmt.Errorf("%w: want %s, it has %s: is this the right cluster, without another machine in between", ErrHash, hash, pki.CAHash(list[0]))
	}
	return list[i], nil
}

// ask sends one request over a connection of its own, after verify has accepted it.
func ask(ctx context.Context, method, url string, form, into any, verify func(tls.ConnectionState) error) error {
	transport := &http.Transport{
		TLSHandshakeTimeout: tlsgate.HandshakeTime, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyConnection: verify},
	}
	var body []byte
	if form != nil {
		var err error
		if body, err = json.Marshal(form); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return term.UsageError{Err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrUnavailable, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, pki.MaxPEM))
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrUnavailable, err)
	}
	if answer.StatusCode != http.StatusOK {
		var failed struct{ Message, Remedy string }
		if json.Unmarshal(text, &failed) != nil || failed.Message == "" {
			failed.Message = answer.Status
		}
		return fmt.Errorf("refused: %s (%s)", failed.Message, failed.Remedy)
	}
	return json.Unmarshal(text, into)
}

// Renewal returns a function that requests the next certificate of a node, over
// connections with its present one.
func Renewal(api *client.Client) func(ctx context.Context, request []byte) (*x509.Certificate, error) {
	return func(ctx context.Context, request []byte) (*x509.Certificate, error) {
		d := Client{api}
		var granted enrol.Granted
		if err := d.Call(ctx, http.MethodPost, "/renew", enrol.RenewRequest{Request: request}, &granted); err != nil {
			return nil, err
		}
		leaf, _, err := parseGranted(&granted)
		return leaf, err
	}
}
