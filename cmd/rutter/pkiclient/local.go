package pkiclient

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/log"
)

// CreateLocal makes authorities for a cluster on one machine, and under folder a folder
// of certificates for each server and an operator. Existing ones stay as long as they
// are valid. Compute nodes join by Admit.
func CreateLocal(folder string, servers, hosts []string) error {
	issuer := tlsgate.Issuer{Folder: filepath.Join(folder, "authorities")}
	if _, err := os.Stat(issuer.Folder); err != nil {
		if err := issuer.Init(pki.AuthorityLife); err != nil {
			return err
		}
	}
	grants := map[string]tlsgate.Grant{operatorName: {Identity: matrix.Identity{Role: matrix.Operator, Name: operatorName}}}
	for _, id := range servers {
		grants[id] = tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Server, Name: id}, Hosts: hosts, WithKeys: true}
	}
	for name, grant := range grants {
		to := filepath.Join(folder, name)
		if hasValid(to) {
			continue
		}
		if _, err := issuer.Issue(to, grant); err != nil {
			return err
		}
	}
	return nil
}

// hasValid reports whether a folder has a certificate that has not expired.
func hasValid(folder string) bool {
	list, err := tlsgate.ReadCertificates(tlsgate.ClientPaths(folder).Cert)
	return err == nil && time.Now().Before(list[0].NotAfter)
}

const operatorName = "operator"

// Operator returns the folder of the operator's certificate that Throwaway made.
func Operator(folder string) string { return filepath.Join(folder, operatorName) }

// admitTTL is the lifetime of the tokens that Admit makes. It uses them at once.
const admitTTL = time.Minute

// Admit lets a compute node join at a server: operator makes a token, the node uses it,
// and its certificate goes into folder. If folder has a valid certificate, Admit does
// nothing.
func Admit(ctx context.Context, operator *client.Client, server string, cn log.UUID, folder string) error {
	if hasValid(folder) {
		return nil
	}
	d := Client{operator}
	token, made, err := d.MakeToken(ctx, cn, admitTTL)
	if err != nil {
		return err
	}
	_, err = Join(ctx, server, token, made.CAHash, folder)
	return err
}
