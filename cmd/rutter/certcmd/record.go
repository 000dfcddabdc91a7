package certcmd

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// recordTimeout bounds the request that records issued certificates. The certificates
// exist by then, and can be recorded later.
const recordTimeout = 10 * time.Second

func recordCommand() *cli.Command {
	return &cli.Command{
		Name: "record", Usage: "tell the cluster of certificates that were issued without it", ArgsUsage: "FOLDER|FILE …",
		Description: term.Examples(
			"rutter cert record ~/.rutter-tls                   # the operator's own, once the cluster runs",
			"rutter cert record ./grafana-tls ./cn1-tls",
		) + "\n\nrutter cert list shows them then, and rutter cert rotate finish waits until they are of the new authority. A\ncertificate that was issued after a revocation of its identity is good from its record on.\nWhat was recorded before is left alone. Who issued them must be in the ca.crt (peer-ca.crt) beside them.",
		Flags: []cli.Flag{term.ServersFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return term.Usagef("want folders or files of certificates, as in: rutter cert record ~/.rutter-tls")
			}
			for _, path := range c.Args().Slice() {
				if err := recordAll(c.Context, c, path); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newestRevocation asks the cluster after which revocation a certificate is issued. If it
// cannot be asked, the certificate does not say it: then it is good where its record is known.
func newestRevocation(c *cli.Context, id matrix.Identity) pki.After {
	if _, given, err := term.TLSPaths(c); !c.IsSet("server") || !given || err != nil {
		return pki.After{}
	}
	ctx, cancel := context.WithTimeout(c.Context, recordTimeout)
	defer cancel()
	d, err := pkiclient.Open(c)
	var after pki.After
	if err == nil {
		after, err = d.After(ctx, pki.Subject(id))
	}
	if err != nil {
		output.Printf(c.App.ErrWriter, "Whether %s was ever revoked is not known: %v\n", id.Actor(), err)
	}
	return after
}

// recordIssued records in the cluster the certificates that were issued into folder. If
// no servers were named, it prints how to do it.
func recordIssued(c *cli.Context, folder string) {
	later := "rutter cert record " + folder
	if !c.IsSet("server") {
		output.Printf(c.App.Writer, "The cluster does not know of it yet (rutter cert list): %s, or name a server with -s next time.\nIf this identity was ever revoked, servers refuse the certificate until then.\n", later)
		return
	}
	ctx, cancel := context.WithTimeout(c.Context, recordTimeout)
	defer cancel()
	if err := recordAll(ctx, c, folder); err != nil {
		output.Printf(c.App.ErrWriter, "It was issued, and the cluster could not be told: %v\nLater: %s\n", err, later)
	}
}

// recordAll records the certificates of a folder, or that of a file.
func recordAll(ctx context.Context, c *cli.Context, path string) error {
	files, err := certificateFiles(path)
	if err != nil {
		return err
	}
	if err := ownCertificate(c, filepath.Dir(files[0])); err != nil {
		return err
	}
	d, err := pkiclient.Open(c)
	if err != nil {
		return err
	}
	known, err := d.Certificates(ctx)
	if err != nil {
		return err
	}
	var list []*log.Revocation
	if err := d.Call(ctx, "GET", "/revocations", nil, &list); err != nil {
		return err
	}
	revoked, again := pki.NewRevocations(list), false
	for _, file := range files {
		o, err := recordOf(file)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(known, func(l pkiclient.Certificate) bool { return l.Serial == o.Serial })
		if i >= 0 && known[i].State == "revoked" {
			return fmt.Errorf("%s  serial %s was recorded before it was revoked, and stays revoked: issue another (rutter cert issue)", o.Identity, o.Serial)
		}
		if i < 0 {
			if err := d.Call(ctx, "POST", "/certificates", o, nil); err != nil {
				return err
			}
			again = again || revoked.Names(o.Identity)
		}
		output.Printf(c.App.Writer, "%s  serial %s  is recorded\n", o.Identity, o.Serial)
	}
	if again {
		time.Sleep(publishPause) // servers accept it from now on
	}
	return nil
}

func certificateFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, term.UsageError{Err: err}
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, p := range []tlsgate.Paths{tlsgate.ClientPaths(path), tlsgate.PeerPaths(path)} {
		if p.Exists() {
			files = append(files, p.Cert)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no certificate (%s): %w", path, tlsgate.CertFile, os.ErrNotExist)
	}
	return files, nil
}

// ownCertificate uses the certificate in folder if the command names none and it is an
// operator's. It may be the cluster's first one.
func ownCertificate(c *cli.Context, folder string) error {
	if _, given, err := term.TLSPaths(c); given || err != nil {
		return err
	}
	list, err := tlsgate.ReadCertificates(tlsgate.ClientPaths(folder).Cert)
	if err != nil {
		return nil // there is none: the other flags decide
	}
	if id, err := matrix.FromURIs(list[0].URIs, ""); err != nil || id.Role != matrix.Operator {
		return term.Usagef("recording needs the certificate of an operator: --tls-dir, or RUTTER_TLS_DIR")
	}
	return c.Set("tls-dir", folder)
}

// recordOf returns the log's object for the certificate in a file.
func recordOf(file string) (*log.Certificate, error) {
	authority, trusted := pki.Clients, filepath.Join(filepath.Dir(file), tlsgate.CAFile)
	if filepath.Base(file) == tlsgate.PeerCertFile {
		authority, trusted = pki.Peers, filepath.Join(filepath.Dir(file), tlsgate.PeerCAFile)
	}
	list, err := tlsgate.ReadCertificates(file)
	if err != nil {
		return nil, err
	}
	authorities, err := tlsgate.ReadCertificates(trusted)
	if err != nil {
		return nil, err
	}
	id, err := matrix.FromURIs(list[0].URIs, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	i := slices.IndexFunc(authorities, func(a *x509.Certificate) bool { return list[0].CheckSignatureFrom(a) == nil })
	if i < 0 {
		return nil, errors.Join(pki.ErrAuthority, fmt.Errorf("%s was signed by none of those in %s", file, trusted))
	}
	return enrol.Recording(list[0], id, authority, authorities[i]).Object.(*log.Certificate), nil
}
