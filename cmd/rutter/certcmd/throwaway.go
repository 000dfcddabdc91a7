package certcmd

import (
	"os"
	"path/filepath"

	"rutter/api/access"
	"rutter/api/pki"
	"rutter/api/tlsgate"
	"rutter/log"
)

// Throwaway makes authorities for a cluster of one machine, which nobody keeps,
// and under folder a folder of certificates for each server, each compute node
// (its UUID) and an operator. What is there already stays.
func Throwaway(folder string, servers, hosts []string, cns []log.UUID) error {
	office := tlsgate.Office{Folder: filepath.Join(folder, "authorities")}
	if _, err := os.Stat(office.Folder); err != nil {
		if err := office.Init(pki.AuthorityLife); err != nil {
			return err
		}
	}
	grants := map[string]tlsgate.Grant{operatorName: {Identity: access.Identity{Role: access.Operator, Name: operatorName}}}
	for _, id := range servers {
		grants[id] = tlsgate.Grant{Identity: access.Identity{Role: access.Server, Name: id}, Hosts: hosts, WithKeys: true}
	}
	for _, cn := range cns {
		grants[cn.String()] = tlsgate.Grant{Identity: access.Identity{Role: access.CN, UUID: cn}}
	}
	for name, grant := range grants {
		to := filepath.Join(folder, name)
		if tlsgate.ClientPaths(to).Exists() {
			continue
		}
		if _, err := office.Issue(to, grant); err != nil {
			return err
		}
	}
	return nil
}

const operatorName = "operator"

// Operator returns the folder of the operator's certificate that Throwaway made.
func Operator(folder string) string { return filepath.Join(folder, operatorName) }
