package certcmd

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// Command is `rutter cert`.
func Command() *cli.Command {
	return &cli.Command{
		Name: "cert", Usage: "certificates: who may connect, and as what", Category: "Operating",
		Description: term.Examples(
			"rutter cert init --dir ./pki                                          # once, for a new cluster",
			"rutter cert issue server s1 --dir ./pki --out ./s1-tls --host 10.0.0.1",
			"rutter cert issue operator ada --dir ./pki --out ~/.rutter-tls",
			"rutter cert list",
			"rutter cert revoke cn:564d69b1-a178-3fbe-b36f-3f2b7fd7ed31 --reason stolen",
		) + "\n\nCompute nodes get theirs by rutter token create and rutter agent join. docs/security.md has the whole story.",
		Subcommands: []*cli.Command{initCommand(), issueCommand(), recordCommand(), trustCommand(), listCommand(), showCommand(), revokeCommand(), rotateCommand()},
	}
}

func dirFlag() cli.Flag {
	return &cli.StringFlag{Name: "dir", Value: "pki", Usage: "`FOLDER` with the authorities and their keys"}
}

func lifeFlag(life time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "life", Value: life, Usage: "`TIME` for which it is valid"}
}

func authoritiesOf(c *cli.Context) (tlsgate.Issuer, error) {
	secret, err := term.Passphrase(c)
	return tlsgate.Issuer{Folder: c.String("dir"), Passphrase: secret}, err
}

func initCommand() *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "make the authorities of a new cluster",
		Description: term.Examples("rutter cert init --dir ./pki", "rutter cert init --dir ./pki --passphrase-file ./secret   # keys encrypted, as age -p does",
			"systemd-ask-password | rutter cert init --dir ./pki --passphrase-file -"),
		Flags: []cli.Flag{dirFlag(), term.PassphraseFlag(), lifeFlag(pki.AuthorityLife)},
		Action: func(c *cli.Context) error {
			if err := term.NoArguments(c); err != nil {
				return err
			}
			issuer, err := authoritiesOf(c)
			if err == nil {
				err = issuer.Init(c.Duration("life"))
			}
			if err != nil {
				return err
			}
			list, err := issuer.Authorities(pki.Clients)
			if err != nil {
				return err
			}
			output.Printf(c.App.Writer, "The authorities are in %s. Keep its keys away from every other machine but the servers.\n", issuer.Folder)
			output.Printf(c.App.Writer, "Their hash, by which machines that join know the cluster: %s\n", pki.CAHash(list[0].Certificate))
			return nil
		},
	}
}

func issueCommand() *cli.Command {
	return &cli.Command{
		Name: "issue", Usage: "issue a certificate with the authorities of a folder", ArgsUsage: "server|cn|operator|reader NAME",
		Description: term.Examples(
			"rutter cert issue server s1 --out ./s1-tls --host 10.0.0.1 --host s1.example.com",
			"rutter cert issue operator ada --out ~/.rutter-tls",
			"rutter cert issue reader grafana --out ./grafana-tls --life 8760h -s https://10.0.0.1:7420",
			"rutter cert issue cn 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31 --out ./cn1-tls   # without a token",
		) + "\n\nA server's folder gets the authorities' keys too, so that compute nodes can join at it and it can renew its\nown certificates; --without-keys leaves them out, and then both are done by hand. Keys that are encrypted stay so,\nand the server needs their passphrase too (rutter server --passphrase-file).\n\nWith -s (or RUTTER_SERVER) the cluster is told, so that rutter cert list has it; servers tell of their own. If the\nidentity was ever revoked, the certificate also says that it is of after that: so name a server then.",
		Flags: []cli.Flag{
			dirFlag(), term.PassphraseFlag(),
			&cli.DurationFlag{Name: "life", Usage: "`TIME` for which it is valid", DefaultText: "7 days for what renews itself, cn and server with keys; else 90 days"},
			&cli.StringFlag{Name: "out", Required: true, Usage: "`FOLDER` that is filled, for --tls-dir"},
			&cli.StringSliceFlag{Name: "host", Usage: "`NAME` or address of a server, for browsers and curl; may be given several times"},
			term.ServersFlag(),
			&cli.BoolFlag{Name: "without-keys", Usage: "leave the authorities' keys out of a server's folder"},
		},
		Action: issue,
	}
}

func issue(c *cli.Context) error {
	if c.NArg() != 2 {
		return term.Usagef("want a role and a name, as in: rutter cert issue operator ada --out ./ada-tls")
	}
	id, err := identityOf(c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return err
	}
	issuer, err := authoritiesOf(c)
	if err != nil {
		return err
	}
	life := c.Duration("life")
	if c.IsSet("life") && life <= 0 {
		return term.Usagef("--life %v: want a time, as in 168h", life)
	}
	after := newestRevocation(c, id)
	issued, err := issuer.Issue(c.String("out"), tlsgate.Grant{Identity: id, Hosts: c.StringSlice("host"), Life: life, WithKeys: !c.Bool("without-keys"), After: after})
	if err != nil {
		return err
	}
	for _, one := range issued {
		output.Printf(c.App.Writer, "%s  serial %s  until %s\n", id.Actor(), pki.Serial(one), one.NotAfter.UTC().Format(time.RFC3339))
	}
	output.Printf(c.App.Writer, "in %s\n", c.String("out"))
	if id.Role != matrix.Server || !after.IsZero() { // servers record their own, until they are revoked
		recordIssued(c, c.String("out"))
	}
	return nil
}

// identityOf parses a role and a name.
func identityOf(role, name string) (matrix.Identity, error) {
	r, err := matrix.ParseRole(role)
	if err != nil {
		return matrix.Identity{}, term.UsageError{Err: err}
	}
	id := matrix.Identity{Role: r, Name: name}
	if r == matrix.CN {
		if id.UUID, err = log.ParseUUID(name); err != nil {
			return id, term.Usagef("a cn's name is its UUID: %w", err)
		}
		id.Name = ""
	}
	if _, err := id.URI(); err != nil {
		return id, term.UsageError{Err: err}
	}
	return id, nil
}

// shown is the output of `rutter cert show` for one certificate.
type shown struct {
	File      string    `json:"file"`
	Identity  string    `json:"identity,omitempty"`
	Authority string    `json:"authority,omitempty"` // its name, if it is one
	Serial    string    `json:"serial"`
	Key       string    `json:"key"`
	CAHash    string    `json:"ca_hash,omitempty"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Hosts     []string  `json:"hosts,omitempty"`
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "what stands in certificates", ArgsUsage: "FILE|FOLDER …",
		Description: term.Examples("rutter cert show ./pki", "rutter cert show ~/.rutter-tls/tls.crt -o json"),
		Flags:       []cli.Flag{output.TableFlag()},
		Action:      show,
	}
}

func show(c *cli.Context) error {
	if c.NArg() == 0 {
		return term.Usagef("want files of certificates, or folders of them, as in: rutter cert show ./pki")
	}
	var all []shown
	for _, path := range c.Args().Slice() {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.crt")); err != nil || len(files) == 0 {
				return fmt.Errorf("%s has no certificates (*.crt): %w", path, os.ErrNotExist)
			}
		}
		for _, file := range files {
			list, err := tlsgate.ReadCertificates(file)
			if err != nil {
				return err
			}
			for _, one := range list {
				all = append(all, describe(file, one))
			}
		}
	}
	return output.Table(c, all, func(t io.Writer) {
		output.Print(t, "FILE\tWHO\tSERIAL\tUNTIL\tHASH\n")
		for _, s := range all {
			output.Printf(t, "%s\t%s\t%s\t%s\t%s\n", s.File, s.Identity+s.Authority, s.Serial, s.NotAfter.UTC().Format(time.RFC3339), s.CAHash)
		}
	})
}

func describe(file string, one *x509.Certificate) shown {
	s := shown{File: file, Serial: pki.Serial(one), Key: pki.CertificateKeyID(one), NotBefore: one.NotBefore, NotAfter: one.NotAfter, Hosts: one.DNSNames}
	for _, ip := range one.IPAddresses {
		s.Hosts = append(s.Hosts, ip.String())
	}
	if one.IsCA {
		s.Authority, s.CAHash = one.Subject.CommonName, pki.CAHash(one)
	} else if id, err := matrix.FromURIs(one.URIs, s.Serial); err == nil {
		s.Identity = pki.Subject(id)
	}
	return s
}

func rotateCommand() *cli.Command {
	which := &cli.StringFlag{Name: "authority", Value: pki.Clients, Usage: "`NAME` of the set: clients or peers"}
	flags := []cli.Flag{which, dirFlag(), term.PassphraseFlag(), term.ServersFlag()}
	return &cli.Command{
		Name: "rotate", Usage: "replace an authority by another one, with no downtime",
		Description: term.Examples(
			"rutter cert rotate begin     # makes the next authority; from now on all trust both",
			"                             # then copy the folder's key file (ca.key, peer-ca.key) to each server's --tls-dir",
			"rutter cert rotate issue     # the next one signs; all renew within minutes",
			"rutter cert rotate finish    # refused while there are certificates of the old one; then that is no longer trusted",
		),
		Subcommands: []*cli.Command{
			{
				Name: "begin", Usage: "make the next authority, and make all servers and agents trust both", Flags: append(flags, lifeFlag(pki.AuthorityLife)),
				Description: term.Examples("rutter cert rotate begin --authority peers --dir ./pki"), Action: rotateBegin,
			},
			{
				Name: "issue", Usage: "have the next authority sign", Flags: flags,
				Description: term.Examples("rutter cert rotate issue --authority peers --dir ./pki"), Action: rotateIssue,
			},
			{
				Name: "finish", Usage: "stop trusting the old authority", Action: rotateFinish,
				Flags:       append(flags, &cli.BoolFlag{Name: "yes", Aliases: []string{"force"}, Usage: "lock out those who still have a certificate of the old one"}),
				Description: term.Examples("rutter cert rotate finish --authority peers --dir ./pki"),
			},
		},
	}
}

// rotation opens what each step of a rotation needs.
func rotation(c *cli.Context) (issuer tlsgate.Issuer, name string, api *pkiclient.Client, err error) {
	if err = term.NoArguments(c); err != nil {
		return
	}
	if name = c.String("authority"); name != pki.Clients && name != pki.Peers {
		err = term.Usagef("--authority %q: want %s or %s", name, pki.Clients, pki.Peers)
		return
	}
	if issuer, err = authoritiesOf(c); err == nil {
		api, err = pkiclient.Open(c)
	}
	return
}

// publishAll makes the cluster trust the authorities of the folder.
func publishAll(c *cli.Context, api *pkiclient.Client, issuer tlsgate.Issuer, name string) error {
	list, err := issuer.Authorities(name)
	if err != nil {
		return err
	}
	return publish(c, api, list, name)
}

// publish makes the cluster trust authorities, of which the first signs.
func publish(c *cli.Context, api *pkiclient.Client, list []*pki.Authority, name string) error {
	form := enrol.PublishForm{Issuing: pki.CertificateKeyID(list[0].Certificate), Yes: c.Bool("yes")}
	for _, a := range list {
		form.Certificates = append(form.Certificates, pki.Base64(a.Certificate))
	}
	if err := api.Call(c.Context, "PUT", "/authorities/"+name, form, nil); err != nil {
		return err
	}
	time.Sleep(publishPause)
	if name != pki.Clients {
		return nil
	}
	return trustNow(c, form.Certificates)
}

// publishPause is longer than servers need to follow the log's authorities, which they
// read four times a second. An operator who goes on at once with the next certificate
// must not be refused by a server that has not read them yet.
const publishPause = time.Second

// trustNow makes the operator's own certificate folder trust the cluster's authorities,
// because servers will show certificates of the next authority.
func trustNow(c *cli.Context, encoded []string) error {
	paths, given, err := term.TLSPaths(c)
	if err != nil || !given {
		return err
	}
	authorities, err := enrol.Certificates(&log.Authority{Name: pki.Clients, Certificates: encoded})
	if err != nil {
		return err
	}
	return trust(paths, authorities)
}

// trust replaces the authorities that an identity trusts, unless its own certificate is
// by none of them.
func trust(paths tlsgate.Paths, authorities []*x509.Certificate) error {
	own, err := tlsgate.ReadCertificates(paths.Cert)
	if err != nil {
		return err
	}
	set, err := pki.NewTrust(authorities, pki.Revocations{})
	if err != nil {
		return err
	}
	if set.Signed(own[0]) == "" {
		return fmt.Errorf("%w: that of %s: issue another (rutter cert issue)", pki.ErrAuthority, paths.Cert)
	}
	return tlsgate.WriteCertificates(paths.CA, authorities...)
}

func trustCommand() *cli.Command {
	return &cli.Command{
		Name: "trust", Usage: "trust the authorities that the cluster trusts now, as after rutter cert rotate begin",
		Description: term.Examples("rutter cert trust", "rutter cert trust --tls-dir ./grafana-tls") + "\n\nServers and agents do so by themselves; this is for the folders of people and programs. The server that is asked\nmust be trusted already.",
		Flags:       []cli.Flag{term.ServersFlag()},
		Action: func(c *cli.Context) error {
			paths, given, err := term.TLSPaths(c)
			if err != nil {
				return err
			}
			if !given {
				return term.Usagef("name the folder of the certificate: --tls-dir, or RUTTER_TLS_DIR")
			}
			d, err := pkiclient.Open(c)
			if err != nil {
				return err
			}
			var bundle enrol.Bundle
			if err := d.Call(c.Context, "GET", "/bundle", nil, &bundle); err != nil {
				return err
			}
			authorities, err := pki.ParseCertificates([]byte(bundle.Authorities))
			if err != nil {
				return err
			}
			if err := trust(paths, authorities); err != nil {
				return err
			}
			for _, a := range authorities {
				output.Printf(c.App.Writer, "%s  until %s  %s\n", a.Subject.CommonName, a.NotAfter.UTC().Format(time.RFC3339), pki.CAHash(a))
			}
			output.Printf(c.App.Writer, "in %s\n", paths.CA)
			return nil
		},
	}
}

func rotateBegin(c *cli.Context) error {
	issuer, name, api, err := rotation(c)
	if err != nil {
		return err
	}
	list, err := issuer.Authorities(name)
	if err == nil && len(list) == 1 { // else it was begun, and the cluster was not told
		_, err = issuer.Add(name, c.Duration("life"))
	}
	if err == nil {
		err = publishAll(c, api, issuer, name)
	}
	if err != nil {
		return err
	}
	keys := tlsgate.CAKeyFile
	if name == pki.Peers {
		keys = tlsgate.PeerCAKeyFile
	}
	output.Printf(c.App.Writer, "Two authorities of %s are trusted now, the present one and the next.\nCopy %s to every server's --tls-dir, with mode 0600, and have people and programs take up both: rutter cert trust.\nThen: %s\n", name, filepath.Join(issuer.Folder, keys), rotateStep(c, "issue"))
	return nil
}

func rotateIssue(c *cli.Context) error {
	issuer, name, api, err := rotation(c)
	if err == nil {
		err = issuer.Promote(name)
	}
	if err == nil {
		err = publishAll(c, api, issuer, name)
	}
	if err != nil {
		return err
	}
	people := ""
	if name == pki.Clients {
		people = " People's are issued by hand (rutter cert issue -s URL)."
	}
	output.Printf(c.App.Writer, "The next authority of %s signs now: servers and compute nodes renew theirs within minutes.%s\nThen: %s\n", name, people, rotateStep(c, "finish"))
	return nil
}

func rotateFinish(c *cli.Context) error {
	issuer, name, api, err := rotation(c)
	if err != nil {
		return err
	}
	list, err := issuer.Authorities(name)
	if err != nil {
		return err
	}
	old, err := api.Holders(c.Context, name, pki.CertificateKeyID(list[0].Certificate))
	if err != nil {
		return err
	}
	if len(old) > 0 && !c.Bool("yes") {
		more := ""
		if n := len(old) - maxNamed; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return fmt.Errorf("without a certificate of the new authority are yet: %s%s. Wait for servers and compute nodes (those that were off since before rotate begin need the authorities' file of --dir first); issue people's by hand (rutter cert issue -s URL), or revoke them; --yes locks all of them out", strings.Join(old[:min(len(old), maxNamed)], ", "), more)
	}
	if err := publish(c, api, list[:1], name); err != nil {
		return err
	}
	if err := issuer.Drop(name); err != nil {
		return err
	}
	output.Printf(c.App.Writer, "Only the new authority of %s is trusted.\n", name)
	return nil
}

// maxNamed bounds the names in a refusal.
const maxNamed = 10

// rotateStep is the next command of a rotation.
func rotateStep(c *cli.Context, step string) string {
	return fmt.Sprintf("rutter cert rotate %s --authority %s --dir %s", step, c.String("authority"), c.String("dir"))
}
