package clustercmd

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// GrantCommand shows and sets the rights of readers and of programs without a
// certificate.
func GrantCommand() *cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.Flag()}
	return &cli.Command{
		Name: "grant", Usage: "limit readers to tenants, and programs without a certificate to surfaces",
		Description: term.Examples("rutter grant set reader:acme --owner 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", "rutter grant list") +
			"\n\nA reader without a grant reads everything. A program without a certificate (Triton's) that a grant\n" +
			"names by its address may do what that says, in place of what --triton-allow does; the narrowest\n" +
			"network decides. A grant is in effect within a second, on every server.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "all grants", Flags: flags, Action: grantList,
				Description: term.Examples("rutter grant list", "rutter grant list -o json"),
			},
			{
				Name: "set", Usage: "make or replace one", ArgsUsage: "SUBJECT", Action: grantSet,
				Flags: append(flags[:len(flags):len(flags)],
					&cli.StringSliceFlag{Name: "owner", Usage: "`UUID` of a tenant whose objects the reader sees; may be given several times"},
					&cli.StringSliceFlag{Name: "read", Usage: "`SURFACE` that the program may read: napi, cnapi or vmapi"},
					&cli.StringSliceFlag{Name: "write", Usage: "`SURFACE` that it may write as well"},
					&cli.StringFlag{Name: "comment", Usage: "`TEXT` for people"},
				),
				Description: term.Examples(
					"rutter grant set reader:acme --owner 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31",
					"rutter grant set foreign:10.99.99.30 --read napi --write vmapi --comment cloudapi"),
			},
			{
				Name: "remove", Usage: "take one away: a reader sees everything again, a program what --triton-allow says", ArgsUsage: "SUBJECT", Flags: flags, Action: grantRemove,
				Description: term.Examples("rutter grant remove reader:acme"),
			},
		},
	}
}

func grantList(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	var all []log.Grant
	raw, err := askGrants(c, http.MethodGet, "/grants", nil)
	if err != nil {
		return err
	}
	if c.String("output") != "table" {
		return output.JSONText(c.App.Writer, raw)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	out := output.Aligned(c.App.Writer)
	output.Print(out, "SUBJECT\tOWNERS\tREAD\tWRITE\tCOMMENT\n")
	for _, g := range all {
		var owners []string
		for _, o := range g.OwnerUUIDs {
			owners = append(owners, o.String())
		}
		output.Printf(out, "%s\t%s\t%s\t%s\t%s\n", g.Subject, strings.Join(owners, ","), strings.Join(g.Read, ","), strings.Join(g.Write, ","), g.Comment)
	}
	return out.Flush()
}

func grantSet(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want one SUBJECT, as in reader:NAME or foreign:ADDRESS")
	}
	g := log.Grant{Read: c.StringSlice("read"), Write: c.StringSlice("write"), Comment: c.String("comment")}
	for _, text := range c.StringSlice("owner") {
		owner, err := log.ParseUUID(text)
		if err != nil {
			return term.Usagef("--owner: %w", err)
		}
		g.OwnerUUIDs = append(g.OwnerUUIDs, owner)
	}
	body, err := json.Marshal(&g)
	if err != nil {
		return err
	}
	_, err = askGrants(c, http.MethodPut, "/grants/"+c.Args().First(), body)
	return err
}

func grantRemove(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want one SUBJECT, as rutter grant list shows it")
	}
	_, err := askGrants(c, http.MethodDelete, "/grants/"+c.Args().First(), nil)
	return err
}

func askGrants(c *cli.Context, method, path string, body []byte) ([]byte, error) {
	api, err := clusterClient(c)
	if err != nil {
		return nil, err
	}
	return api.Raw(c.Context, method, path, body)
}
