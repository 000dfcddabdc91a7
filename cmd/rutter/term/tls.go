package term

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
)

// TLSFlags name the certificate that a command shows to servers.
func TLSFlags() []cli.Flag {
	return []cli.Flag{
		TLSDirFlag(),
		&cli.StringFlag{Name: "tls-cert", EnvVars: []string{"RUTTER_TLS_CERT"}, Usage: "`FILE` of the certificate, if it is not tls.crt in --tls-dir"},
		&cli.StringFlag{Name: "tls-key", EnvVars: []string{"RUTTER_TLS_KEY"}, Usage: "`FILE` of its private key, if it is not tls.key in --tls-dir"},
		&cli.StringFlag{Name: "tls-ca", EnvVars: []string{"RUTTER_TLS_CA"}, Usage: "`FILE` of the authorities that are trusted, if it is not ca.crt in --tls-dir"},
	}
}

// TLSDirFlag names a folder of certificates, as rutter cert issue fills it.
func TLSDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "tls-dir", EnvVars: []string{"RUTTER_TLS_DIR"}, Usage: "`FOLDER` of the certificate (tls.crt, tls.key) and of whom it trusts (ca.crt); servers are then at https"}
}

// TLSPaths are the files that TLSFlags name; ok is false if none was given.
func TLSPaths(c *cli.Context) (paths tlsgate.Paths, ok bool, err error) {
	folder, cert, key, ca := c.String("tls-dir"), c.String("tls-cert"), c.String("tls-key"), c.String("tls-ca")
	if folder == "" && cert == "" && key == "" && ca == "" {
		return paths, false, nil
	}
	if folder != "" {
		paths = tlsgate.ClientPaths(folder)
	}
	for _, one := range []struct {
		value string
		path  *string
	}{{cert, &paths.Cert}, {key, &paths.Key}, {ca, &paths.CA}} {
		if one.value != "" {
			*one.path = one.value
		}
	}
	if paths.Cert == "" || paths.Key == "" || paths.CA == "" {
		return paths, false, Usagef("--tls-cert, --tls-key and --tls-ca belong together: give all three, or --tls-dir")
	}
	return paths, true, nil
}

// Keeper returns what TLSFlags name, or nil.
func Keeper(c *cli.Context) (*tlsgate.Keeper, error) {
	paths, ok, err := TLSPaths(c)
	if err != nil || !ok {
		return nil, err
	}
	keeper, err := tlsgate.New(tlsgate.Config{Paths: paths, Name: pki.Clients})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (--tls-dir names a folder that rutter cert issue or rutter agent join has filled)", err)
	}
	return keeper, err
}

// DialServer returns what makes a client's connections to servers, or nil for a
// nil keeper.
func DialServer(keeper *tlsgate.Keeper) func(ctx context.Context, network, address string) (net.Conn, error) {
	if keeper == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return keeper.Dial(ctx, network, address, tlsgate.Role(matrix.Server))
	}
}

// secureDefault is the default server of a command with a certificate.
const secureDefault = "https://127.0.0.1:7420"

// ClientConfig is the configuration of a client of the servers that ServersFlag
// names, with the certificate of TLSFlags. The caller adds what else it wants.
func ClientConfig(c *cli.Context) (client.Config, error) {
	return ClientConfigOf(c, c.StringSlice("server"))
}

// ClientConfigOf is ClientConfig for servers that a flag other than ServersFlag names.
func ClientConfigOf(c *cli.Context, servers []string) (client.Config, error) {
	keeper, err := Keeper(c)
	if err != nil {
		return client.Config{}, err
	}
	if keeper != nil && len(servers) == 1 && servers[0] == plainDefault && !c.IsSet("server") {
		servers = []string{secureDefault}
	}
	return client.Config{Servers: servers, DialTLS: DialServer(keeper), Unwelcome: unwelcome(keeper), Patience: Patience, Silent: silentTo(c.Context, servers)}, nil
}

// unwelcome is client.Config's, for commands: they end with the reason. Daemons
// continue instead, because an operator may mend it.
func unwelcome(keeper *tlsgate.Keeper) func(error) error {
	if keeper == nil {
		return nil
	}
	return keeper.Unwelcome
}

// OpenClient is client.New. Its errors are usage errors.
func OpenClient(cfg client.Config, err error) (*client.Client, error) {
	if err != nil {
		return nil, err
	}
	api, err := client.New(cfg)
	if err != nil {
		return nil, UsageError{err}
	}
	return api, nil
}
