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

// Throwaway makes authorities for a cluster of one machine, which nobody keeps,
// and under folder a folder of certificates for each server and an operator.
// What is there already stays, as long as it is good. Compute nodes join (Admit).
func Throwaway(folder string, servers, hosts []string) error {
	office := tlsgate.Issuer{Folder: filepath.Join(folder, "authorities")}
	if _, err := os.Stat(office.Folder); err != nil {
		if err := office.Init(pki.AuthorityLife); err != nil {
			return err
		}
	}
	grants := map[string]tlsgate.Grant{operatorName: {Identity: matrix.Identity{Role: matrix.Operator, Name: operatorName}}}
	for _, id := range servers {
		grants[id] = tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Server, Name: id}, Hosts: hosts, WithKeys: true}
	}
	for name, grant := range grants {
		to := filepath.Join(folder, name)
		if good(to) {
			continue
		}
		if _, err := office.Issue(to, grant); err != nil {
			return err
		}
	}
	return nil
}

// good reports whether a folder has a certificate that has not ended.
func good(folder string) bool {
	list, err := tlsgate.ReadCertificates(tlsgate.ClientPaths(folder).Cert)
	return err == nil && time.Now().Before(list[0].NotAfter)
}

const operatorName = "operator"

// Operator returns the folder of the operator's certificate that Throwaway made.
func Operator(folder string) string { return filepath.Join(folder, operatorName) }

// admitTTL is how long the tokens are good that Admit makes: it uses them at once.
const admitTTL = time.Minute

// Admit has a compute node join at a server as any does, by a token that operator
// makes, and fills folder; one that has a good certificate needs none.
func Admit(ctx context.Context, operator *client.Client, server string, cn log.UUID, folder string) error {
	if good(folder) {
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
