package certcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/enrol"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

func listCommand() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "the certificates that the cluster knows of",
		Description: term.Examples("rutter cert list", "rutter cert list -o ndjson") + "\n\nServers tell of their own, and of those that they issue. What rutter cert issue made is in it if it was told\nwhich cluster it is for (-s), or after rutter cert record.",
		Flags:       []cli.Flag{term.ServersFlag(), output.TableFlag()},
		Action: func(c *cli.Context) error {
			d, err := pkiclient.Open(c)
			if err != nil {
				return err
			}
			all, err := d.Certificates(c.Context)
			if err != nil {
				return err
			}
			return output.Table(c, all, func(t io.Writer) {
				output.Print(t, "IDENTITY\tAUTHORITY\tSERIAL\tUNTIL\tSTATE\n")
				for _, one := range all {
					output.Printf(t, "%s\t%s\t%s\t%s\t%s\n", one.Identity, one.Authority, one.Serial, one.NotAfter, one.State)
				}
			})
		},
	}
}

func revokeCommand() *cli.Command {
	return &cli.Command{
		Name: "revoke", Usage: "take away what certificates grant, now", ArgsUsage: "cn:UUID|server:NAME|operator:NAME|reader:NAME|serial:HEX|key:HEX|FILE",
		Description: term.Examples(
			"rutter cert revoke cn:564d69b1-a178-3fbe-b36f-3f2b7fd7ed31 --reason stolen",
			"rutter cert revoke serial:5f0a12",
			"rutter cert revoke ./lost-laptop/tls.crt",
		) + "\n\nOf an identity all certificates are meant, whatever their times say: good is one that a server grants later, or\nthat is issued by hand and recorded later (rutter cert record). Tokens that let it back in are made useless.\nRefused is what leaves no quorum of servers, no operator, or revokes your own certificate; --yes does it all the same.\nOf a single server revoke the serial after another certificate was issued: its name is refused.",
		Flags: []cli.Flag{
			term.ServersFlag(), &cli.StringFlag{Name: "reason", Usage: "`TEXT` for those who look later"},
			&cli.BoolFlag{Name: "yes", Usage: "lock out those who lose their last way in by it, you too"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return term.Usagef("want what to revoke, as in: rutter cert revoke cn:564d69b1-a178-3fbe-b36f-3f2b7fd7ed31")
			}
			d, err := pkiclient.Open(c)
			if err != nil {
				return err
			}
			r, err := revocation(c.Context, d, c.Args().First())
			if err != nil {
				return err
			}
			r.Reason = c.String("reason")
			if err := d.Call(c.Context, "POST", "/revocations", enrol.RevokeForm{Revocation: *r, Yes: c.Bool("yes")}, nil); err != nil {
				return err
			}
			waitForNextSecond()
			output.Printf(c.App.Writer, "%s is revoked\n", r.Subject)
			return nil
		},
	}
}

// waitForNextSecond waits until the second of a revocation is over. The times of
// certificates are whole seconds, so a certificate issued in the same second would be
// revoked too.
func waitForNextSecond() {
	now := time.Now()
	time.Sleep(time.Until(now.Truncate(time.Second).Add(time.Second)))
}

// TokenCommand is `rutter token`.
func TokenCommand() *cli.Command {
	return &cli.Command{
		Name: "token", Usage: "tokens, each of which lets one compute node join, once", Category: "Operating",
		Description: term.Examples("rutter token create --cn 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31 --ttl 10m", "rutter token list"),
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "make a token, and print it: it is kept nowhere", Action: createToken,
				Flags: []cli.Flag{
					term.ServersFlag(), output.Flag(),
					&cli.StringFlag{Name: "cn", Required: true, Usage: "`UUID` of the compute node"},
					&cli.DurationFlag{Name: "ttl", Value: 10 * time.Minute, Usage: "`TIME` in which it can be used"},
				},
				Description: term.Examples("rutter token create --cn 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31 --ttl 10m"),
			},
			{
				Name: "list", Usage: "the tokens that there are, and who used them", Action: listTokens,
				Flags:       []cli.Flag{term.ServersFlag(), output.TableFlag()},
				Description: term.Examples("rutter token list"),
			},
			{
				Name: "revoke", Usage: "make a token useless", ArgsUsage: "UUID", Flags: []cli.Flag{term.ServersFlag()},
				Description: term.Examples("rutter token revoke 1f0e8d64-…") + "\n\nIt is the first half of the token. A certificate that it bought stays: rutter cert revoke.",
				Action: func(c *cli.Context) error {
					id, err := log.ParseUUID(c.Args().First())
					if err != nil || c.NArg() != 1 {
						return term.Usagef("want the UUID of a token: its first half")
					}
					d, err := pkiclient.Open(c)
					if err != nil {
						return err
					}
					return d.Call(c.Context, "DELETE", "/tokens/"+id.String(), nil, nil)
				},
			},
		},
	}
}

func createToken(c *cli.Context) error {
	cn, err := named.UUID(c, log.KindServer, c.String("cn"))
	if err != nil {
		return fmt.Errorf("--cn: %w", err)
	}
	if c.Duration("ttl") <= 0 {
		return term.Usagef("--ttl %v: want a time, as in 10m", c.Duration("ttl"))
	}
	d, err := pkiclient.Open(c)
	if err != nil {
		return err
	}
	_, made, err := d.MakeToken(c.Context, cn, c.Duration("ttl"))
	if err != nil {
		return err
	}
	return output.One(c, made, func(w io.Writer) {
		output.Printf(w, "%s\n\nOn the compute node, until %s:\n  rutter agent join --token-file - --server %s --ca-hash %s --tls-dir /etc/rutter/tls\nand then the token, which is not kept anywhere.\n",
			made.Token, made.Expires, strings.Join(d.API.Servers(), " --server "), made.CAHash)
	})
}

func listTokens(c *cli.Context) error {
	d, err := pkiclient.Open(c)
	if err != nil {
		return err
	}
	var all []enrol.TokenForm
	if err := d.Call(c.Context, "GET", "/tokens", nil, &all); err != nil {
		return err
	}
	return output.Table(c, all, func(t io.Writer) {
		output.Print(t, "TOKEN\tCN\tEXPIRES\tUSED\tVOIDED\n")
		for _, one := range all {
			used, voided := "-", "-"
			if one.Used != 0 {
				used = one.Used.String()
			}
			if one.Voided != 0 {
				voided = one.Voided.String()
			}
			output.Printf(t, "%s\t%s\t%s\t%s\t%s\n", one.UUID, one.CN, one.Expires, used, voided)
		}
	})
}

// revocation returns the revocation of a subject, or of a certificate in a file.
func revocation(ctx context.Context, d *pkiclient.Client, what string) (*log.Revocation, error) {
	if _, err := os.Stat(what); err == nil {
		list, err := tlsgate.ReadCertificates(what)
		if err != nil {
			return nil, err
		}
		s := describe(what, list[0])
		return &log.Revocation{Subject: "serial:" + s.Serial, Identity: s.Identity, Until: log.Time(s.NotAfter.UnixNano())}, nil
	}
	r := &log.Revocation{Subject: strings.Replace(what, "/", ":", 1)}
	sort, rest, ok := strings.Cut(r.Subject, ":")
	if !ok {
		return nil, term.Usagef("%q is no file, and not cn:UUID, server:NAME, operator:NAME, reader:NAME, serial:HEX or key:HEX", what)
	}
	if sort != "serial" && sort != "key" {
		r.Until = log.Time(time.Now().Add(pki.MaxLife).UnixNano())
		return r, nil
	}
	all, err := d.Certificates(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if sort == "serial" && one.Serial == rest || sort == "key" && one.Key == rest {
			r.Identity, r.Until = one.Identity, max(r.Until, one.NotAfter)
		}
	}
	return r, nil
}
